package control

import (
	"context"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

// roster is the list of replicas in the store, as the hub keeps it.
type roster struct {
	store *store.Store
	own   string // the replica in this process, which ends with it
}

// listed are the replicas that earlier controls have given a lease and that may
// hold it still, with its length, and the longest of these. What ran inside an
// earlier control ended with it.
func (r *roster) listed(ctx context.Context) (leases map[string]time.Duration, longest time.Duration, err error) {
	if err := r.store.DropOwnReplicas(ctx); err != nil {
		return nil, 0, err
	}
	replicas, err := r.store.Replicas(ctx)
	if err != nil {
		return nil, 0, err
	}
	leases = map[string]time.Duration{}
	for _, replica := range replicas {
		leases[replica.Name] = replica.Lease
		longest = max(longest, replica.Lease)
	}
	return leases, longest, nil
}

// Add implements revocation.Roster.
func (r *roster) Add(ctx context.Context, replica string, lease time.Duration) error {
	return r.store.ListReplica(ctx, replica, lease, replica == r.own)
}

// Remove implements revocation.Roster.
func (r *roster) Remove(ctx context.Context, replica string) error {
	return r.store.DropReplica(ctx, replica)
}
