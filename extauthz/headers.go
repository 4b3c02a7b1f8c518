package extauthz

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/secret"
)

// upstreamHeader is one that a server's upstream wants, an API key for example.
type upstreamHeader struct {
	name  string // lower case
	value secret.Text
}

// headerCache holds the headers of servers used lately, in memory only.
type headerCache struct {
	control pb.ControlClient
	once    singleflight.Group
	mu      sync.Mutex // guards kept
	kept    map[identity.ServerID]keptHeaders
}

type keptHeaders struct {
	revision int64
	headers  []upstreamHeader
}

const (
	headersKept     = 10_000
	headersDeadline = 2 * time.Second
)

func newHeaderCache(control pb.ControlClient) *headerCache {
	return &headerCache{control: control, kept: map[identity.ServerID]keptHeaders{}}
}

// of returns the headers of a server, exactly those of its record: newer ones
// could be meant for another upstream than the record still names.
func (c *headerCache) of(ctx context.Context, srv *server) ([]upstreamHeader, error) {
	if srv.headersRevision == 0 {
		return nil, nil
	}
	c.mu.Lock()
	found := c.kept[srv.id]
	c.mu.Unlock()
	if found.revision == srv.headersRevision {
		return found.headers, nil
	}
	// One flight per revision: who has a newer record waits for its own.
	flight := srv.id.String() + "/" + strconv.FormatInt(srv.headersRevision, 10)
	wait := c.once.DoChan(flight, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), headersDeadline)
		defer cancel()
		return c.fetch(ctx, srv)
	})
	select {
	case got := <-wait:
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.([]upstreamHeader), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *headerCache) fetch(ctx context.Context, srv *server) ([]upstreamHeader, error) {
	got, err := c.control.UpstreamHeaders(ctx, &pb.UpstreamHeadersRequest{ServerId: srv.id.String()})
	if err != nil {
		return nil, fmt.Errorf("fetching the upstream headers of server %s: %w", srv.id, err)
	}
	if got.GetHeadersRevision() != srv.headersRevision {
		return nil, fmt.Errorf("fetching the upstream headers of server %s: control has those of another revision of its record", srv.id)
	}
	headers := make([]upstreamHeader, 0, len(got.GetHeaders()))
	for _, h := range got.GetHeaders() {
		headers = append(headers, upstreamHeader{strings.ToLower(h.GetName()), secret.New(h.GetValue())})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= headersKept {
		for id := range c.kept { // any one: map order is random
			delete(c.kept, id)
			break
		}
	}
	c.kept[srv.id] = keptHeaders{got.GetHeadersRevision(), headers}
	return headers, nil
}
