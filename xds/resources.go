package xds

import (
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// byType are the resources by type URL and name, as the caches want them.
func (r Resources) byType() map[string]map[string]types.Resource {
	all := map[string]map[string]types.Resource{
		resourcev3.SecretType: {}, resourcev3.ClusterType: {},
		resourcev3.RouteType: {}, resourcev3.ListenerType: {},
	}
	for _, s := range r.Secrets {
		all[resourcev3.SecretType][s.GetName()] = s
	}
	for _, c := range r.Clusters {
		all[resourcev3.ClusterType][c.GetName()] = c
	}
	for _, t := range r.Routes {
		all[resourcev3.RouteType][t.GetName()] = t
	}
	for _, l := range r.Listeners {
		all[resourcev3.ListenerType][l.GetName()] = l
	}
	return all
}
