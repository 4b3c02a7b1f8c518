package control

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/arbiter-gateway/arbiter/control/api"
	"github.com/arbiter-gateway/arbiter/xds"
)

type peerKey struct{}

// withPeer notes who has connected to a unix socket.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return ctx
	}
	var (
		uid     int
		peerErr error
	)
	err = raw.Control(func(fd uintptr) { uid, peerErr = peerUID(int(fd)) })
	if err != nil || peerErr != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

// adminRoutes serves the API to whoever runs as the same user, or as root.
func (c *Control) adminRoutes(apiRoutes http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if uid, known := ctx.Value(peerKey{}).(int); known && (uid == os.Getuid() || uid == 0) {
			ctx = api.WithCaller(ctx, fmt.Sprintf("admin socket, uid %d", uid))
		}
		apiRoutes.ServeHTTP(w, r.WithContext(ctx)) // without a caller it refuses everything
	}))
	mux.Handle("/", c.health)
	return mux
}

// Problems lists why the gateway cannot do its work, one sentence each.
func (c *Control) Problems(ctx context.Context) []string {
	problems := []string{}
	if err := c.storeCheck.run(ctx, c.cfg.Store.Check); err != nil {
		problems = append(problems, "store: "+err.Error())
	}
	for _, err := range []error{c.feed.envoyFault(), c.journalFault(), c.hub.Fault(), c.policies.Fault()} {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	leased := map[string]bool{}
	for _, r := range c.hub.Replicas() {
		leased[r.Name] = r.Connected
	}
	envoys, replicas := 0, 0
	for _, node := range c.xds.Replicas() {
		if node.Role == xds.RoleEnvoy {
			envoys++
		} else {
			replicas++
			if !leased[node.Node] {
				problems = append(problems, node.Node+" does not follow the revocation log: it refuses everything")
			}
		}
		if node.Error != "" {
			problems = append(problems, node.Node+" refused its configuration: "+node.Error)
		}
	}
	if envoys == 0 {
		problems = append(problems, "no Envoy is connected")
	}
	if replicas == 0 {
		problems = append(problems, "no extauthz is connected")
	}
	if c.cfg.RolesReady != nil {
		if err := c.cfg.RolesReady(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// Refused says that Envoy will not run the configuration that it was given.
func (c *Control) Refused() error {
	for _, node := range c.xds.Replicas() {
		if node.Role == xds.RoleEnvoy && node.Error != "" {
			return &xds.NotAppliedError{Role: node.Role, Node: node.Node, Detail: node.Error}
		}
	}
	return nil
}

// status is what doctor shows.
func (c *Control) status(ctx context.Context) (api.Status, error) {
	position, err := c.cfg.Store.Position(ctx)
	if err != nil {
		return api.Status{}, err
	}
	revision, err := c.cfg.Store.Revision(ctx)
	if err != nil {
		return api.Status{}, err
	}
	keys, err := c.cfg.Store.Keys(ctx)
	if err != nil {
		return api.Status{}, err
	}
	waiting, err := c.cfg.Store.WaitingTools(ctx)
	if err != nil {
		return api.Status{}, err
	}
	pair := c.feed.certificate()
	out := api.Status{
		Version: c.cfg.Version, Clock: c.cfg.Now().UTC(), BaseURL: c.cfg.Gateway.BaseURL, Listeners: []string{},
		Database: api.DatabaseStatus{
			Path: c.cfg.StorePath, ID: position.Database, Revision: revision, Epoch: position.Epoch, Seq: position.Seq,
		},
		Envoy:        api.EnvoyStatus{Version: c.cfg.EnvoyVersion},
		Certificates: []api.CertificateStatus{{Name: "server", NotBefore: pair.NotBefore, NotAfter: pair.NotAfter}},
		Keys:         api.KeyStatus{Sealing: true, TokenMAC: true, Sessions: len(keys.Sessions)},
		WaitingTools: waiting,
		Problems:     c.Problems(ctx),
	}
	replicas := map[string]*api.ReplicaStatus{}
	var order []string
	for _, node := range c.xds.Replicas() {
		if node.Role == xds.RoleEnvoy {
			addEnvoy(&out, node, revision)
			continue
		}
		replicas[node.Node] = &api.ReplicaStatus{Name: node.Node, Connected: true, AppliedRevision: node.Revision, LastError: node.Error}
		order = append(order, node.Node)
	}
	for _, r := range c.hub.Replicas() {
		if replicas[r.Name] == nil {
			replicas[r.Name] = &api.ReplicaStatus{Name: r.Name, Connected: r.Connected}
			order = append(order, r.Name)
		}
		replicas[r.Name].ConfirmedSeq, replicas[r.Name].LeaseUntil = r.Confirmed, r.LeaseUntil
	}
	for _, name := range order {
		out.Replicas = append(out.Replicas, *replicas[name])
	}
	return out, nil
}

// addEnvoy counts one Envoy in: they are ready when all are, and what one has
// refused is said of all.
func addEnvoy(out *api.Status, node xds.Replica, revision int64) {
	e := &out.Envoy
	e.Ready = node.Current && (e.Ready || e.Connected == 0)
	e.Connected++
	e.AppliedRevision = revision
	if node.Error != "" {
		e.Error = node.Node + ": " + node.Error
	}
	if listen := node.Place.Listen.String(); !slices.Contains(out.Listeners, listen) {
		out.Listeners = append(out.Listeners, listen)
		slices.Sort(out.Listeners)
	}
}

// cachedCheck runs a check at most once a second: whoever can reach /readyz
// cannot keep the database busy.
type cachedCheck struct {
	mu   sync.Mutex // guards the rest; held while the check runs
	at   time.Time
	last error
}

func (c *cachedCheck) run(ctx context.Context, check func(context.Context) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < time.Second {
		return c.last
	}
	c.last, c.at = check(context.WithoutCancel(ctx)), time.Now()
	return c.last
}
