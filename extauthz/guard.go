package extauthz

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arbiter-gateway/arbiter/extauthz/lists"
)

// guard is the answer flow of docs/architecture.md: one call per answer that
// Check marked or that may not pass as it is.
//
//  1. read the note that Check left
//  2. judge status and headers
//  3. replace what may not pass, seal the session of an initialize
//  4. take out of lists what the caller may not use
//  5. hold a live stream until it ends or is cut
type guard struct {
	server *Server
	stream procv3.ExternalProcessor_ProcessServer
	mu     sync.Mutex // one message at a time: a cut comes from elsewhere
}

func (g *guard) send(out *procv3.ProcessingResponse) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stream.Send(out)
}

// Process implements Envoy's ext_proc service. Returning nil lets an answer go
// on unguarded, so every way out before the answer has ended is an error.
func (s *Server) Process(stream procv3.ExternalProcessor_ProcessServer) error {
	err := (&guard{server: s, stream: stream}).run()
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	if status.Code(err) == codes.Unknown {
		s.cfg.Slog.Error("guarding an answer", "error", err)
		return status.Error(codes.Internal, "guarding the answer")
	}
	return err
}

func (g *guard) run() error {
	first, err := g.stream.Recv()
	if err != nil {
		return err
	}
	if first.GetResponseHeaders() == nil {
		return errors.New("the first message has no response headers")
	}
	mark, n, err := noteOf(first.GetMetadataContext().GetFilterMetadata()) // 1.
	if err != nil {
		return err
	}
	if n == nil { // the gate opens for answers to what Check allowed, and for no other
		return errors.New("an answer came without check's note")
	}
	answer := readAnswer(first.GetResponseHeaders())
	switch v := judge(mark, n, answer); v { // 2.
	case verdictReplace:
		return g.replace(n, answer) // 3.
	case verdictSealBody, verdictSealNow:
		return g.seal(v, n, answer)
	case verdictAccepted:
		return g.accept()
	case verdictFilter, verdictFilterStream:
		return g.filter(v, n) // 4.
	case verdictWatch:
		return g.watch(n, nil, nil) // 5.
	case verdictPass: // an upstream's session id is nobody's but ours to know
		return g.pass(removeHeaders(headerSessionID))
	default:
		return errors.New("no verdict")
	}
}

// pass lets the answer go on and waits until Envoy is done with it.
func (g *guard) pass(mutation *procv3.HeaderMutation) error {
	if err := g.sendHeaders(mutation, nil); err != nil {
		return err
	}
	return g.drain()
}

func (g *guard) sendHeaders(mutation *procv3.HeaderMutation, mode *procfilterv3.ProcessingMode) error {
	return g.send(&procv3.ProcessingResponse{
		Response: &procv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &procv3.HeadersResponse{
			Response: &procv3.CommonResponse{HeaderMutation: mutation},
		}},
		ModeOverride: mode,
	})
}

// drain answers what Envoy still sends and returns when it has ended.
func (g *guard) drain() error {
	for {
		in, err := g.stream.Recv()
		if err != nil {
			return err
		}
		if in.GetResponseTrailers() == nil {
			return errors.New("a message came that was not asked for")
		}
		if err := g.send(&procv3.ProcessingResponse{
			Response: &procv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &procv3.TrailersResponse{}},
		}); err != nil {
			return err
		}
	}
}

// replace answers in the upstream's place: its headers and body are dropped.
func (g *guard) replace(n *note, a answer) error {
	out := upstreamFault(a.status)
	body := errorBody(n.Transport, n.ID, out, errorData{RequestID: n.Request})
	if err := g.immediate(out.status, "upstream_answer_refused", body, [2]string{"arbiter-decision", "allow"}); err != nil {
		return err
	}
	g.server.metrics.replaced.Inc()
	return g.drain()
}

// accept answers a notification on /rpc: there is nothing to say (JSON-RPC 2.0,
// section 4.1).
func (g *guard) accept() error {
	if err := g.immediate(http.StatusAccepted, "notification", nil, [2]string{"arbiter-decision", "allow"}); err != nil {
		return err
	}
	return g.drain()
}

func (g *guard) immediate(code int, details string, body []byte, lines ...[2]string) error {
	return g.send(&procv3.ProcessingResponse{
		Response: &procv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: immediateResponse(code, details, body, lines)},
	})
}

// watch holds a live stream: registered first, then judged again, then let go
// on; so a revocation in flight finds it in the index or in the set, and a
// policy that is being swapped in decides it here or there. With a filter its
// body goes through that.
func (g *guard) watch(n *note, mutation *procv3.HeaderMutation, f *listFilter) error {
	s := g.server
	by := opened{n.Server, n.Question}
	st, count := s.streams.add(g.end, by, tokenKey(n.Credential), serverKey(n.Server))
	defer s.streams.remove(st)
	snap, err := s.stillLive(n)
	if err == nil {
		err = s.opens(g.stream.Context(), snap, by)
	}
	if err != nil {
		return g.cut(n, err)
	}
	if count > snap.gateway.streams {
		return g.cut(n, deny(reasonStreams))
	}
	if f != nil {
		return g.hold(n, st, f.run)
	}
	if err := g.sendHeaders(mutation, nil); err != nil {
		return err
	}
	return g.hold(n, st, g.drain)
}

// hold waits until Envoy is done with a live stream, of itself or because it
// was cut. It blocks in Recv: a live stream costs one goroutine.
func (g *guard) hold(n *note, st *liveStream, drain func() error) error {
	if end := n.expires(); !end.IsZero() {
		timer := time.AfterFunc(end.Sub(g.server.revoked.Now()), st.end)
		defer timer.Stop()
	}
	return drain()
}

// end cuts a stream whose headers are out. A failure to send means that Envoy
// has let go of it already.
func (g *guard) end() {
	g.server.metrics.cut.Inc()
	if err := g.immediate(unauthorized.status, "credential_ended", nil); err != nil {
		g.server.cfg.Slog.Debug("cutting a stream that is gone", "error", err)
	}
}

// cut refuses a stream that lost a race before its headers are out.
func (g *guard) cut(n *note, why error) error {
	if err := g.instead(n, why, "refused_after_check"); err != nil {
		return err
	}
	return g.drain()
}

// instead answers in the place of an answer of which nothing is out.
func (g *guard) instead(n *note, why error, details string) error {
	out := refusal(why)
	body := errorBody(n.Transport, n.ID, out, errorData{RequestID: n.Request})
	lines := headerLines{{"arbiter-decision", decisionBehind(why)}}
	if out.status == http.StatusUnauthorized {
		lines = append(lines, [2]string{"www-authenticate", challenge(g.server.snapshot.Load(), n.Server, n.Transport, true)})
	}
	return g.immediate(out.status, details, body, lines...)
}

// decisionBehind is what was decided when an answer does not pass: a fault of
// the upstream's leaves the request allowed.
func decisionBehind(why error) string {
	if _, theirs := errors.AsType[*lists.Refusal](why); theirs || errors.Is(why, errTooLate) {
		return "allow"
	}
	return "deny"
}

// seal gives the session of an initialize its id, if whoever asked may still.
func (g *guard) seal(v verdict, n *note, a answer) error {
	snap, err := g.server.stillLive(n)
	switch {
	case err != nil:
		return g.cut(n, err)
	case v == verdictSealNow:
		return g.sealStream(snap, n, a)
	default:
		return g.sealBody(snap, n, a)
	}
}

// sealBody answers an initialize whose result is plain JSON: the id is given
// only when there is a result, so the body is read first, up to sealBodyMost.
func (g *guard) sealBody(snap *Snapshot, n *note, a answer) error {
	mode := &procfilterv3.ProcessingMode{ResponseBodyMode: procfilterv3.ProcessingMode_BUFFERED_PARTIAL}
	if err := g.sendHeaders(removeHeaders(headerSessionID), mode); err != nil {
		return err
	}
	in, err := g.stream.Recv()
	if err != nil {
		return err
	}
	body := in.GetResponseBody()
	if body == nil {
		return errors.New("the body of an initialize answer did not come")
	}
	found, err := initializeResult(body.GetBody())
	if err != nil { // not whole, not JSON, or too long
		return g.replace(n, a)
	}
	var mutation *procv3.HeaderMutation
	if found {
		id, err := g.server.seal(snap, n, a)
		if err != nil {
			return g.replace(n, a)
		}
		mutation = setHeader(headerSessionID, id)
	}
	if err := g.send(&procv3.ProcessingResponse{
		Response: &procv3.ProcessingResponse_ResponseBody{ResponseBody: &procv3.BodyResponse{
			Response: &procv3.CommonResponse{HeaderMutation: mutation},
		}},
	}); err != nil {
		return err
	}
	return g.drain()
}

// sealStream answers an initialize whose answer is a stream: the id has to be
// given before the result can be seen.
func (g *guard) sealStream(snap *Snapshot, n *note, a answer) error {
	id, err := g.server.seal(snap, n, a)
	if err != nil {
		return g.replace(n, a)
	}
	return g.watch(n, setHeader(headerSessionID, id), nil)
}

func setHeader(name, value string) *procv3.HeaderMutation {
	return &procv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}
}

func removeHeaders(names ...string) *procv3.HeaderMutation {
	return &procv3.HeaderMutation{RemoveHeaders: names}
}
