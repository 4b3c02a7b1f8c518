package xds

import (
	"log/slog"
	"slices"
	"strconv"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A message carries at most this much, so that it stays under gRPC's limits.
const (
	batchResources = 1000
	batchBytes     = 1 << 20
)

// fleetStream is the state of one extauthz' stream. One goroutine owns it.
type fleetStream struct {
	fleet    *fleet
	in       *inbound
	replicas *replicas
	me       *replica
	log      *slog.Logger

	subscribed map[string]bool
	cursor     int64 // change that was looked at last
	nonces     int64
	sent       []*sentBatch      // in the order of sending, until confirmed
	refused    map[Name]struct{} // sent again with the next change
	reached    int64             // revision that the replica has been sent as a whole
}

// sentBatch is one message on its way.
type sentBatch struct {
	nonce    string
	names    []Name
	of       int64 // revision that it is part of
	revision int64 // reached when this and all before it are confirmed; 0: none
	answered bool
}

func (f *fleet) serve(in *inbound, live *replicas, me *replica, log *slog.Logger) error {
	s := &fleetStream{
		fleet: f, in: in, replicas: live, me: me, log: log,
		subscribed: map[string]bool{}, refused: map[Name]struct{}{},
		cursor: f.end(), // what came before is in the differences
	}
	var waiting []*discoveryv3.DeltaDiscoveryRequest // subscriptions before there is anything
	for {
		n := f.since(s.cursor)
		if n.ready {
			for _, request := range waiting {
				if err := s.subscribe(request); err != nil {
					return err
				}
			}
			waiting = nil
			if err := s.follow(n); err != nil {
				return err
			}
		}
		select {
		case request, ok := <-in.requests:
			if !ok {
				return nil
			}
			if n.ready || request.GetResponseNonce() != "" {
				if err := s.take(request); err != nil {
					return err
				}
			} else {
				waiting = append(waiting, request)
			}
		case <-n.changed:
		case <-in.replaced:
			return errReplaced
		case <-in.Context().Done():
			return in.Context().Err()
		}
	}
}

// take handles one message of the replica.
func (s *fleetStream) take(r *discoveryv3.DeltaDiscoveryRequest) error {
	if r.GetResponseNonce() != "" {
		s.answered(r)
		return nil
	}
	return s.subscribe(r)
}

// subscribe starts one type with the difference to what the replica has.
func (s *fleetStream) subscribe(r *discoveryv3.DeltaDiscoveryRequest) error {
	typeURL := r.GetTypeUrl()
	names := r.GetResourceNamesSubscribe()
	switch {
	case !slices.Contains(FleetTypes(), typeURL):
		return status.Errorf(codes.InvalidArgument, "unknown type %q", typeURL)
	case len(r.GetResourceNamesUnsubscribe()) > 0 || len(names) > 1 || len(names) == 1 && names[0] != "*":
		return status.Error(codes.InvalidArgument, "only the whole of a type can be subscribed to")
	case s.subscribed[typeURL]:
		return status.Errorf(codes.InvalidArgument, "type %q is subscribed to already", typeURL)
	}
	s.subscribed[typeURL] = true
	d, revision, _ := s.fleet.differences(typeURL, r.GetInitialResourceVersions())
	return s.send(d, revision, true)
}

// follow sends what changed since the cursor, and what was refused before. A
// change of nothing that concerns the replica moves its revision all the same.
func (s *fleetStream) follow(n news) error {
	if n.gap {
		return status.Error(codes.Unavailable, "too far behind: connect again")
	}
	s.cursor = n.cursor
	if len(n.names) > 0 {
		names := s.refused
		s.refused = map[Name]struct{}{}
		for _, name := range n.names {
			if s.subscribed[name.Type] {
				names[name] = struct{}{}
			}
		}
		all := s.fleet.look(names)
		for i, d := range all {
			if err := s.send(d, n.revision, i == len(all)-1); err != nil {
				return err
			}
		}
	}
	s.reach(n.revision)
	return nil
}

// send cuts a difference into messages. The last one of the last difference of a
// revision carries it as system_version_info, those before it "": a replica that
// has taken it has taken all.
func (s *fleetStream) send(d delta, revision int64, last bool) error {
	for {
		r, names := d.next()
		done := len(d.changed) == 0 && len(d.removed) == 0
		if done && last {
			r.SystemVersionInfo = strconv.FormatInt(revision, 10)
		}
		s.nonces++
		r.Nonce = strconv.FormatInt(s.nonces, 10)
		s.sent = append(s.sent, &sentBatch{nonce: r.GetNonce(), names: names, of: revision})
		if err := s.in.Send(r); err != nil {
			return err
		}
		if done {
			return nil
		}
	}
}

// next takes one message's worth off a difference.
func (d *delta) next() (*discoveryv3.DeltaDiscoveryResponse, []Name) {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: d.typeURL}
	var names []Name
	count, size := 0, 0
	for count < len(d.changed) && count < batchResources && size < batchBytes {
		names = append(names, Name{d.typeURL, d.changed[count].GetName()})
		size += proto.Size(d.changed[count])
		count++
	}
	r.Resources, d.changed = d.changed[:count], d.changed[count:]
	gone := min(len(d.removed), batchResources-count)
	r.RemovedResources, d.removed = d.removed[:gone], d.removed[gone:]
	for _, name := range r.GetRemovedResources() {
		names = append(names, Name{d.typeURL, name})
	}
	return r, names
}

// reach notes that everything up to a revision is on its way.
func (s *fleetStream) reach(revision int64) {
	if revision <= s.reached || len(s.subscribed) < len(FleetTypes()) {
		return
	}
	s.reached = revision
	s.sent = append(s.sent, &sentBatch{revision: revision, answered: true})
	s.confirm()
}

// answered notes a confirmation or a refusal.
func (s *fleetStream) answered(r *discoveryv3.DeltaDiscoveryRequest) {
	i := slices.IndexFunc(s.sent, func(b *sentBatch) bool { return b.nonce == r.GetResponseNonce() })
	if i < 0 {
		return
	}
	batch := s.sent[i]
	batch.answered = true
	if refusal := r.GetErrorDetail(); refusal != nil {
		for _, name := range batch.names {
			s.refused[name] = struct{}{}
		}
		s.log.Error("extauthz refused a change", "type", r.GetTypeUrl(), "reason", refusal.GetMessage())
		part := refusal.GetCode() == int32(codes.DataLoss)
		s.replicas.edit(func() {
			s.me.refused, s.me.refusedAt = refusal.GetMessage(), max(batch.of, s.reached)
			s.me.behind = s.me.behind || !part
		})
	}
	s.confirm()
}

// confirm moves the replica's revision over all that is answered in order. A
// refusal holds it back until what was refused has been sent again and taken.
func (s *fleetStream) confirm() {
	var revision int64
	for len(s.sent) > 0 && s.sent[0].answered {
		revision = max(revision, s.sent[0].revision)
		s.sent = s.sent[1:]
	}
	if revision == 0 || len(s.refused) > 0 {
		return
	}
	s.replicas.edit(func() {
		s.me.revision, s.me.refused, s.me.behind = max(s.me.revision, revision), "", false
	})
}
