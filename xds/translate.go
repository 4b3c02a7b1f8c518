package xds

import (
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Names of the resources that refer to each other.
const (
	listenerName   = "public"
	routesName     = "public"
	serverCertName = "server-certificate"
	checkCluster   = "extauthz-check"
	guardCluster   = "extauthz-guard"
)

// Resources is one whole configuration of Envoy's data plane.
type Resources struct {
	Listeners []*listenerv3.Listener
	Routes    []*routev3.RouteConfiguration
	Clusters  []*clusterv3.Cluster
	Secrets   []*tlsv3.Secret
}

// Translate makes the configuration of the Envoys of one place from a State. It
// is pure: what is equal gives equal resources. The error wraps ErrState or
// ErrPlace.
func Translate(s State, at Place) (Resources, error) {
	if err := s.check(); err != nil {
		return Resources{}, err
	}
	if err := at.check(); err != nil {
		return Resources{}, err
	}
	s.Times = s.Times.withDefaults()
	r := Resources{
		Listeners: []*listenerv3.Listener{listener(s, at)},
		Routes:    []*routev3.RouteConfiguration{routes()},
		Clusters:  clusters(s, at),
		Secrets:   []*tlsv3.Secret{serverCertificate(s)},
	}
	if err := r.validate(); err != nil {
		return Resources{}, fmt.Errorf("%w: %w", ErrState, err)
	}
	return r, nil
}

// validate holds the resources against the rules of Envoy's API.
func (r Resources) validate() error {
	for _, byName := range r.byType() {
		for name, resource := range byName {
			checked, ok := resource.(interface{ ValidateAll() error })
			if !ok {
				return fmt.Errorf("%s has no rules to be held against", name)
			}
			if err := checked.ValidateAll(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// pack wraps a message for a typed_config. Only invalid UTF-8 could make it
// fail, and State.check has refused that: a panic here is a bug of this package.
func pack(m proto.Message) *anypb.Any {
	packed := new(anypb.Any)
	if err := anypb.MarshalFrom(packed, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(fmt.Sprintf("marshalling %T: %v", m, err))
	}
	return packed
}

func extension(name string, config proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: pack(config)}
}

func duration(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func number(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(n) }

func yes() *wrapperspb.BoolValue { return wrapperspb.Bool(true) }

func no() *wrapperspb.BoolValue { return wrapperspb.Bool(false) }

// fromADS says that a resource comes on the stream that brought its user.
func fromADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}
