package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arbiter-gateway/arbiter/internal/store"
	"github.com/arbiter-gateway/arbiter/policies"
)

// OriginStandard is the origin of the policy that came with the program. A
// newer program replaces it by its own.
const OriginStandard = "standard"

// Source is where policies come from by themselves. One goroutine uses it.
type Source interface {
	// Origin names it, for people.
	Origin() string
	// Read reads what it offers now. An error with places in files is a
	// *policies.BundleError.
	Read(ctx context.Context) (Offer, error)
	// Wait returns when there may be something else to read, or ctx has ended.
	Wait(ctx context.Context)
}

// Offer is what a source has.
type Offer struct {
	Bundle  policies.Bundle
	Version int64 // of a signed bundle; 0: not signed
}

// Config is what a Keeper needs.
type Config struct {
	Store    *store.Store
	Source   Source // nil: policies come over the API alone
	Registry *prometheus.Registry
	Log      *slog.Logger
	// CompileMost is how long compiling may take: each replica does it too, and
	// must not lose its lease over it. Default: an hour.
	CompileMost time.Duration
	Now         func() time.Time // default time.Now
}

// Keeper knows which policy decides, and accepts others. Its methods may be
// called from any goroutine.
type Keeper struct {
	cfg      Config
	metrics  *metrics
	compiled compiled

	accepting sync.Mutex // one bundle is accepted at a time

	// Of the goroutine that reads the source.
	judged  string    // which offer verdict is about
	verdict *Refusal  // of that offer; nil: accepted
	again   time.Time // when that offer is judged anew; zero: never, the verdict stays

	mu       sync.Mutex   // guards the rest
	deciding store.Policy // without its files
	refused  *Refusal     // by the source's last reading
	broken   *Refusal     // what decides cannot be compiled
}

// New finds the policy that decides: what the source offers, else what was
// accepted last, else the standard policy. What the source offers may be at
// fault when there is a policy to go on with; without one that is an error.
func New(ctx context.Context, cfg Config) (*Keeper, error) {
	if cfg.Store == nil || cfg.Registry == nil || cfg.Log == nil {
		return nil, errors.New("policy: store, registry and log are needed")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.CompileMost == 0 {
		cfg.CompileMost = time.Hour
	}
	k := &Keeper{cfg: cfg, metrics: newMetrics(cfg.Registry)}
	stored, err := cfg.Store.Policy(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	none := err != nil
	if !none {
		k.Decides(stored)
	}
	switch {
	case cfg.Source != nil:
		err = k.read(ctx)
		if none && err != nil {
			return nil, fmt.Errorf("there is no policy yet, and that of %s cannot be used: %w", cfg.Source.Origin(), err)
		}
	// Where nobody has chosen, each program brings its own.
	case none || stored.Origin == OriginStandard && stored.Revision != policies.Standard().Revision():
		if _, err := k.Accept(ctx, policies.Standard(), OriginStandard, 0); err != nil {
			return nil, err
		}
	}
	return k, k.examine(ctx)
}

// examine tries what decides: another program may have accepted it.
func (k *Keeper) examine(ctx context.Context) error {
	deciding := k.Deciding()
	_, err := k.Policy(ctx, deciding.Revision)
	bundle, atFault := errors.AsType[*policies.BundleError](err)
	if !atFault {
		return err
	}
	refusal := &Refusal{Origin: deciding.Origin, At: k.cfg.Now(), Faults: bundle.Faults}
	k.tell("the policy that was accepted before cannot be used by this program: every call is refused until another one is accepted", refusal)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = refusal
	return nil
}

// Run follows the source until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	if k.cfg.Source == nil {
		return nil
	}
	for {
		k.cfg.Source.Wait(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // told to stop
		}
		_ = k.read(ctx) // told, and shown by Refused
	}
}

// Deciding is the policy that decides, without its files.
func (k *Keeper) Deciding() store.Policy {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.deciding
}

// Decides notes which policy decides now. Another control may have accepted it.
func (k *Keeper) Decides(p store.Policy) {
	p.Files = nil
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.Settings < k.deciding.Settings {
		return // a later one was accepted meanwhile
	}
	if p.Revision != k.deciding.Revision {
		k.broken = nil
	}
	k.deciding = p
	k.metrics.accepted(p)
}

// Source names where policies come from by themselves; "": nowhere.
func (k *Keeper) Source() string {
	if k.cfg.Source == nil {
		return ""
	}
	return k.cfg.Source.Origin()
}

// Refused is what is wrong with what the source offers, nil when nothing is.
func (k *Keeper) Refused() *Refusal {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refused
}

// Fault says why what decides cannot be used by this program; nil: it can.
func (k *Keeper) Fault() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken == nil {
		return nil
	}
	return fmt.Errorf("the policy that decides cannot be used by this program, so every call is refused: %s", k.broken.summary())
}
