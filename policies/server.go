package policies

import (
	"fmt"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// Server is what a policy sees of a server. It is immutable, and costs 112 bytes
// and its strings until it is asked about.
type Server struct {
	ID     identity.ServerID
	Name   string
	Labels map[string]string
	Grants jsontext.Value // an array of grants as control checked it; nil: absent
	Data   jsontext.Value // an object of the operator's own; nil: absent

	seen atomic.Pointer[seen] // made when it is first asked for
}

// seen is a server as OPA reads it, with a number that no other server of this
// process has, so that two records of one server are two.
type seen struct {
	number uint64
	term   *ast.Term
}

// servers counts them.
var servers atomic.Uint64

// read makes the server's term once: it is asked for with each call.
func (s *Server) read() (*seen, error) {
	if made := s.seen.Load(); made != nil {
		return made, nil
	}
	o := make(object, 0, 5)
	if !s.ID.IsZero() {
		o.text("id", s.ID.String())
	}
	o.text("name", s.Name)
	if len(s.Labels) > 0 {
		labels := make(object, 0, len(s.Labels))
		for name, value := range s.Labels {
			labels.add(name, ast.StringTerm(value))
		}
		o.add("labels", labels.term())
	}
	if err := o.json("grants", s.Grants); err != nil {
		return nil, fmt.Errorf("input.server.%w", err)
	}
	if err := o.json("data", s.Data); err != nil {
		return nil, fmt.Errorf("input.server.%w", err)
	}
	s.seen.CompareAndSwap(nil, &seen{number: servers.Add(1), term: o.term()})
	return s.seen.Load(), nil
}
