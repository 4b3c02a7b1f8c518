package policy

import (
	"context"
	"slices"
	"sync"

	"github.com/arbiter-gateway/arbiter/policies"
)

// compiledKept is how many policies are kept compiled: people ask about what
// decides, what decided before it, and candidates.
const compiledKept = 4

// compiled keeps the policies that were asked for last.
type compiled struct {
	mu  sync.Mutex         // guards all; held while one is compiled
	all []*policies.Policy // the one used last is the last
}

// Policy is a kept policy, ready to be asked. The error is store.ErrNotFound
// when it is not kept any more, and a *policies.BundleError when this program
// cannot use it.
func (k *Keeper) Policy(ctx context.Context, revision string) (*policies.Policy, error) {
	k.compiled.mu.Lock()
	defer k.compiled.mu.Unlock()
	if policy := k.compiled.find(revision); policy != nil {
		return policy, nil
	}
	stored, err := k.cfg.Store.PolicyByRevision(ctx, revision)
	if err != nil {
		return nil, err
	}
	policy, err := policies.Compile(ctx, policies.Bundle{Files: stored.Files})
	if err != nil {
		return nil, err
	}
	k.compiled.keep(policy)
	return policy, nil
}

func (c *compiled) add(policy *policies.Policy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.find(policy.Revision()) == nil {
		c.keep(policy)
	}
}

// find makes a policy the one used last. c.mu is held.
func (c *compiled) find(revision string) *policies.Policy {
	i := slices.IndexFunc(c.all, func(p *policies.Policy) bool { return p.Revision() == revision })
	if i < 0 {
		return nil
	}
	policy := c.all[i]
	c.all = append(slices.Delete(c.all, i, i+1), policy)
	return policy
}

// keep adds a policy; the one that was not used for longest goes. c.mu is held.
func (c *compiled) keep(policy *policies.Policy) {
	if len(c.all) == compiledKept {
		c.all = slices.Delete(c.all, 0, 1)
	}
	c.all = append(c.all, policy)
}
