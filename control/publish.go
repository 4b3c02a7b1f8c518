package control

import (
	"context"
	"maps"
	"slices"

	"github.com/arbiter-gateway/arbiter/internal/servercert"
)

// pushEnvoy gives Envoy the profiles that it does not have yet, and waits until
// it runs them. At the start there is no Envoy to wait for. A fault is reported
// and holds no server back: those that need the profile answer 503.
func (f *feed) pushEnvoy(ctx context.Context) {
	f.mu.Lock()
	first, complete := f.revision == 0, true
	for _, ca := range f.cas {
		complete = complete && f.published[ca]
	}
	f.mu.Unlock()
	if complete && !first {
		return
	}
	err := f.publish(true)
	if err == nil && !first {
		wait, cancel := context.WithTimeout(ctx, envoyWait)
		defer cancel()
		err = f.xds.Applied(wait, 0)
	}
	f.report(err)
}

// publish gives Envoy the certificate and the bundles in use; with keep also
// those that it has already.
func (f *feed) publish(keep bool) error {
	f.publishing.Lock()
	defer f.publishing.Unlock()
	f.mu.Lock()
	bundles := map[string]bool{}
	for _, ca := range f.cas {
		bundles[ca] = true
	}
	if keep {
		maps.Copy(bundles, f.published)
	}
	state := f.cfg.Envoy
	state.Certificate, state.Key = f.pair.Certificate, f.pair.Key
	state.CAs = slices.Sorted(maps.Keys(bundles))
	f.mu.Unlock()
	err := f.xds.SetEnvoy(state)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.published = bundles
	}
	f.fault = err
	return err
}

func (f *feed) report(err error) {
	if err != nil {
		f.cfg.Slog.Error("Envoy does not run the newest configuration", "error", err)
	}
}

// envoyFault says why Envoy was not given the newest configuration.
func (f *feed) envoyFault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

func (f *feed) useCertificate(pair servercert.Pair) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pair = pair
}

func (f *feed) certificate() servercert.Pair {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pair
}

func (f *feed) replaceCertificate(pair servercert.Pair) error {
	old := f.certificate()
	f.useCertificate(pair)
	if err := f.publish(true); err != nil {
		f.useCertificate(old)
		return err
	}
	return nil
}
