package extauthz

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/mask"
	pb "github.com/arbiter-gateway/arbiter/internal/proto"
	"github.com/arbiter-gateway/arbiter/policies/record"
)

// values are the argument values of a request whose server's settings ask for
// them: for control, apart from the record and never in the local log. nil:
// there are none to be sent.
func (d *decision) values() *pb.Values {
	if d.req == nil || d.srv == nil || d.srv.mask == nil || len(d.call.messages) == 0 {
		return nil
	}
	arguments := make([]jsontext.Value, len(d.call.messages))
	for i, m := range d.call.messages {
		arguments[i] = callOf(m).Arguments // of an unknown method there are params, which no mask speaks of
	}
	values := record.Values(d.srv.mask, arguments)
	if values == nil {
		return nil
	}
	return &pb.Values{DecisionId: d.req.id, ServerId: d.req.serverID, Arguments: values, Mask: d.srv.mask.ID()}
}

// maskOf is what blanks a server's recorded values. Without one no value is
// recorded: nobody asked for it, or the rules are wrong, and then nobody can say
// what they were to hide.
func maskOf(in *pb.RecordArguments) *mask.Mask {
	if in == nil {
		return nil
	}
	out, err := mask.Parse(in.GetMask())
	if err != nil {
		return nil
	}
	return out
}
