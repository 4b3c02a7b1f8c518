// Package resolve turns the digest of an opaque token into what it stands for:
// a cache in front, control behind.
//
// It holds positive answers only, for revocation.CacheAge at most, counted
// from before control was asked, and none from before the replica's knowledge
// of what is revoked began anew. That something is still live is not its
// business: the caller asks the revoked set on every request. Control is
// trusted to say what a token is.
package resolve

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/internal/identity"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/internal/revocation"
	"github.com/arbiter-gateway/arbiter/internal/token"
)

// Credential is what a token stands for.
type Credential struct {
	ID        string
	Principal identity.Principal
	Scopes    []string
	Narrowed  bool      // false: made without scopes
	Expires   time.Time // zero: never

	Hash   revocation.Hash   // names it in the revoked set
	Memory revocation.Memory // from before control was asked about it
}

// ErrUnknown says that nothing live has this digest.
var ErrUnknown = errors.New("no such token")

// Config is what a Resolver needs.
type Config struct {
	Control pb.ControlClient
	Known   func() *revocation.Known // what this replica knows to be revoked
	Clock   revocation.Clock
	Entries int64 // most tokens kept; default 1,000,000
}

const (
	deadline    = 2 * time.Second
	mostAtOnce  = 256 // lookups under way
	defaultKept = 1_000_000
)

// Resolver resolves tokens. It is safe for concurrent use.
type Resolver struct {
	cfg   Config
	cache *ristretto.Cache[uint64, *entry]
	once  singleflight.Group
	slots *semaphore.Weighted
}

// entry keeps the whole digest: the cache's key is only its first 8 bytes.
type entry struct {
	digest     token.Digest
	credential Credential
}

// New makes a resolver; Close ends its cache.
func New(cfg Config) (*Resolver, error) {
	if cfg.Entries == 0 {
		cfg.Entries = defaultKept
	}
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, *entry]{
		NumCounters: 10 * cfg.Entries, MaxCost: cfg.Entries, BufferItems: 64, IgnoreInternalCost: true,
		KeyToHash: func(key uint64) (uint64, uint64) { return key, 0 },
	})
	if err != nil {
		return nil, fmt.Errorf("making the credential cache: %w", err)
	}
	return &Resolver{cfg: cfg, cache: cache, slots: semaphore.NewWeighted(mostAtOnce)}, nil
}

// Close ends the cache's goroutines.
func (r *Resolver) Close() { r.cache.Close() }

// Token says what the token with this digest stands for, ErrUnknown when it
// stands for nothing. Any other error means that nobody could say.
func (r *Resolver) Token(ctx context.Context, digest token.Digest) (Credential, error) {
	key := binary.BigEndian.Uint64(digest[:])
	if found, ok := r.cache.Get(key); ok && found.digest == digest && r.remembers(found.credential) {
		return found.credential, nil
	}
	return r.lookUp(ctx, digest)
}

// lookUp asks control, once for all who ask for the same token meanwhile.
func (r *Resolver) lookUp(ctx context.Context, digest token.Digest) (Credential, error) {
	key := binary.BigEndian.Uint64(digest[:])
	type outcome struct {
		credential Credential
		err        error
	}
	wait := r.once.DoChan(string(digest[:]), func() (any, error) {
		// Not the caller's context: others wait for the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
		defer cancel()
		credential, err := r.ask(ctx, digest)
		if err == nil {
			r.cache.SetWithTTL(key, &entry{digest, credential}, 1, revocation.CacheAge)
		}
		return outcome{credential, err}, nil
	})
	select {
	case got := <-wait:
		out := got.Val.(outcome)
		return out.credential, out.err
	case <-ctx.Done():
		return Credential{}, fmt.Errorf("resolving a token: %w", ctx.Err())
	}
}

// remembers reports whether an answer may still be used.
func (r *Resolver) remembers(c Credential) bool {
	return r.cfg.Known().Holds(c.Memory, r.cfg.Clock(), revocation.CacheAge)
}

// ask asks control. An answer read before an entry that this replica has
// applied could know a token that the entry ended and that has left the set
// again: it is asked anew.
func (r *Resolver) ask(ctx context.Context, digest token.Digest) (Credential, error) {
	if err := r.slots.Acquire(ctx, 1); err != nil {
		return Credential{}, fmt.Errorf("resolving a token: too many lookups: %w", err)
	}
	defer r.slots.Release(1)
	for range 3 {
		memory := r.cfg.Known().Remember(r.cfg.Clock())
		got, err := r.cfg.Control.Resolve(ctx, &pb.ResolveRequest{Digest: digest[:]})
		if status.Code(err) == codes.NotFound {
			return Credential{}, ErrUnknown
		}
		if err != nil {
			return Credential{}, fmt.Errorf("resolving a token: %w", err)
		}
		read := revocation.Position{Database: got.GetDatabase(), Epoch: got.GetEpoch(), Seq: got.GetSeq()}
		if !r.cfg.Known().Answers(read) {
			continue
		}
		return credentialOf(got, memory)
	}
	return Credential{}, errors.New("resolving a token: control's answers are older than the revocations applied here")
}

func credentialOf(got *pb.ResolveResponse, memory revocation.Memory) (Credential, error) {
	server, err := identity.ParseServerID(got.GetServerId())
	if err != nil {
		return Credential{}, fmt.Errorf("resolving a token: server: %w", err)
	}
	out := Credential{
		Hash: revocation.Key{Kind: revocation.KindAccessToken, Key: got.GetTokenId()}.Hash(), Memory: memory,
		ID: got.GetTokenId(), Scopes: got.GetScopes(), Narrowed: got.GetNarrowed(),
		Principal: identity.Principal{
			Kind: identity.KindAccessToken, Subject: got.GetTokenId(), Server: server, Name: got.GetName(),
		},
	}
	if at := got.GetExpiresUnix(); at != 0 {
		out.Expires = time.Unix(at, 0)
	}
	if out.ID == "" {
		return Credential{}, errors.New("resolving a token: the answer has no id")
	}
	return out, nil
}
