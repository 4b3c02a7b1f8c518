package extauthz

import (
	"fmt"

	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/xds/client"
)

// Type URLs of what control pushes.
const (
	typeServer  = "type.googleapis.com/arbiter.v1.Server"
	typeKeys    = "type.googleapis.com/arbiter.v1.Keys"
	typeGateway = "type.googleapis.com/arbiter.v1.Gateway"
	typePolicy  = "type.googleapis.com/arbiter.v1.Policy"
)

// changesOf reads one pushed update.
func changesOf(update client.Update) ([]change, error) {
	changes := make([]change, 0, len(update.Changed)+len(update.Removed))
	for _, resource := range update.Changed {
		var c change
		var err error
		switch update.Type {
		case typeServer:
			c.server = &pb.Server{}
			err = resource.Body.UnmarshalTo(c.server)
		case typeKeys:
			c.keys = &pb.Keys{}
			err = resource.Body.UnmarshalTo(c.keys)
		case typeGateway:
			c.gateway = &pb.Gateway{}
			err = resource.Body.UnmarshalTo(c.gateway)
		case typePolicy:
			c.policy = &pb.Policy{}
			err = resource.Body.UnmarshalTo(c.policy)
		default:
			err = fmt.Errorf("type %q was not asked for", update.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", resource.Name, err)
		}
		changes = append(changes, c)
	}
	for _, name := range update.Removed {
		if update.Type != typeServer {
			return nil, fmt.Errorf("%s %q cannot be removed", update.Type, name)
		}
		changes = append(changes, change{removed: name})
	}
	return changes, nil
}
