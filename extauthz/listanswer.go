package extauthz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	procfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/arbiter-gateway/arbiter/extauthz/lists"
	"github.com/arbiter-gateway/arbiter/policies"
)

// filterTime is how long the items in one message of Envoy's may take to be
// asked about. It lies below Guard's time for a message (xds.Times.Guard), at
// which Envoy breaks the answer off.
const filterTime = 700 * time.Millisecond

// codeTimeout is that of Envoy's own 504 (xds/localreply.go).
const codeTimeout = -31504

var (
	// errAnswersHeld says that too many bytes of answers wait to be whole.
	errAnswersHeld = errors.New("too many bytes of lists are held back")
	// errTooLate says that an answer was not whole within its call limit.
	errTooLate = errors.New("the server did not answer in time")
)

// listFilter is what step 4 does to one answer: its body goes through a filter
// of package lists, which asks the newest policy about each item.
type listFilter struct {
	g        *guard
	n        *note
	question *question
	stream   bool
	body     interface {
		Next(chunk []byte, last bool) ([]byte, error)
		Held() int
		Hidden() int
	}
	counted int       // of body.Held, in the server's count
	hidden  int       // of body.Hidden, in the metrics
	until   time.Time // when the message has to be answered
	refused bool      // another answer has taken its place
}

// filter is step 4, for JSON and for streams.
func (g *guard) filter(v verdict, n *note) error {
	q, err := parseQuestion(n.Question)
	if err != nil {
		return g.cut(n, err)
	}
	f := &listFilter{g: g, n: n, question: q, stream: v == verdictFilterStream}
	how := lists.Filter{Show: f.show, Private: slices.Contains(versionsModern, q.version)}
	if f.stream {
		f.body = lists.NewStream(how)
		return g.watch(n, nil, f)
	}
	f.body = lists.NewAnswer(how)
	snap, err := g.server.stillLive(n)
	if err != nil {
		return g.cut(n, err)
	}
	limit := time.AfterFunc(snap.servers.find(n.Server).callLimit, f.expire) // it is held in memory
	defer limit.Stop()
	return f.run()
}

// run sends the answer's headers on and answers what Envoy then sends, until it
// has ended. Content-Length goes: the body changes.
func (f *listFilter) run() error {
	defer func() { f.g.server.answers.release(f.counted) }()
	mode := &procfilterv3.ProcessingMode{
		ResponseBodyMode: procfilterv3.ProcessingMode_STREAMED, ResponseTrailerMode: procfilterv3.ProcessingMode_SEND,
	}
	if err := f.g.sendHeaders(removeHeaders(headerSessionID, "content-length"), mode); err != nil {
		return err
	}
	for {
		in, err := f.g.stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case in.GetResponseBody() != nil:
			err = f.next(in.GetResponseBody())
		case in.GetResponseTrailers() != nil:
			err = f.trailers()
		default:
			err = errors.New("a message came that was not asked for")
		}
		if err != nil {
			return err
		}
	}
}

// next answers one part of the body.
func (f *listFilter) next(part *procv3.HttpBody) error {
	if f.refused {
		return f.send(nil, part.GetBody())
	}
	f.until = time.Now().Add(filterTime)
	out, err := f.body.Next(part.GetBody(), part.GetEndOfStream())
	if err == nil {
		err = f.count()
	}
	if err != nil {
		return f.refuse(err, part.GetBody())
	}
	return f.send(out, part.GetBody())
}

// count brings the counts up to date with the filter.
func (f *listFilter) count() error {
	s, held := f.g.server, f.body.Held()
	s.metrics.hidden.Add(float64(f.body.Hidden() - f.hidden))
	f.hidden = f.body.Hidden()
	more := held - f.counted
	if more > 0 && !s.answers.take(more) {
		return errAnswersHeld
	}
	if more < 0 {
		s.answers.release(-more)
	}
	f.counted = held
	return nil
}

// send puts out in the place of a part that came.
func (f *listFilter) send(out, part []byte) error {
	common := &procv3.CommonResponse{}
	switch {
	case bytes.Equal(out, part):
	case len(out) == 0:
		common.BodyMutation = &procv3.BodyMutation{Mutation: &procv3.BodyMutation_ClearBody{ClearBody: true}}
	default:
		common.BodyMutation = &procv3.BodyMutation{Mutation: &procv3.BodyMutation_Body{Body: out}}
	}
	return f.g.send(&procv3.ProcessingResponse{Response: &procv3.ProcessingResponse_ResponseBody{
		ResponseBody: &procv3.BodyResponse{Response: common},
	}})
}

// trailers end a body. What is held back then cannot be sent any more.
func (f *listFilter) trailers() error {
	if !f.refused && !f.stream {
		if _, err := f.body.Next(nil, true); err != nil {
			return f.breakOff(err)
		}
	}
	return f.g.send(&procv3.ProcessingResponse{
		Response: &procv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &procv3.TrailersResponse{}},
	})
}

// refuse puts an error in the place of an answer in JSON, whose status is out
// already, and breaks a stream off.
func (f *listFilter) refuse(why error, part []byte) error {
	if f.stream || f.begun() {
		return f.breakOff(why)
	}
	f.refusing(why)
	f.refused = true
	return f.send(errorBody(f.n.Transport, f.n.ID, refusal(why), errorData{RequestID: f.n.Request}), part)
}

// breakOff ends an answer of which something may be out. When nothing is, not
// even its headers, Envoy gives this one instead.
func (f *listFilter) breakOff(why error) error {
	f.refusing(why)
	f.refused = true
	return f.g.instead(f.n, why, "list_refused")
}

// expire breaks an answer off that was not whole within its call limit.
func (f *listFilter) expire() {
	if err := f.g.instead(f.n, errTooLate, "list_timeout"); err != nil {
		f.g.server.cfg.Slog.Debug("ending an answer that is gone", "error", err)
	}
}

func (f *listFilter) begun() bool {
	answer, isAnswer := f.body.(*lists.Answer)
	return isAnswer && answer.Begun()
}

// refusing counts an answer that does not pass, and says why.
func (f *listFilter) refusing(why error) {
	s := f.g.server
	s.metrics.replaced.Inc()
	if _, denied := errors.AsType[*denial](why); denied || f.g.stream.Context().Err() != nil {
		return // what ended meanwhile has been said elsewhere
	}
	s.cfg.Slog.Warn("a list is not passed on", "request_id", f.n.Request, "server", f.n.Server, "error", why)
}

// refusal is what a caller sees of an answer that does not pass.
func refusal(why error) outward {
	if errors.Is(why, errTooLate) {
		return outward{http.StatusGatewayTimeout, codeTimeout, errTooLate.Error()}
	}
	if _, theirs := errors.AsType[*lists.Refusal](why); theirs {
		return outward{502, codeUpstream, "the server behind the gateway gave a list that is not passed on: it cannot be read in exactly one way, or is too long"}
	}
	if refused, ok := errors.AsType[*denial](why); ok {
		return refused.outward()
	}
	return outward{503, codeUnavailable, "the gateway cannot decide now: try again"}
}

// show asks the newest policy, of the newest server, about the call that would
// use each item, without arguments. An upstream may repeat a name: it is asked
// about once.
func (f *listFilter) show(kind lists.Kind, items []lists.Item) ([]bool, error) {
	snap, err := f.live()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(f.g.stream.Context(), f.until)
	defer cancel()
	srv := snap.servers.find(f.n.Server)
	held, err := f.g.server.tools.held(ctx, srv, kind, items)
	if err != nil {
		return nil, err
	}
	in := f.question.base(srv, f.g.server.revoked.Now())
	in.Action = policies.ActionListItem
	out, known := make([]bool, len(items)), make(map[string]bool, len(items))
	for i, item := range items {
		shown, asked := known[item.Name]
		if !asked {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("asking about %d items: %w", len(items), err)
			}
			in.Call = callOfItem(kind, item.Name, f.question.version)
			answer, err := snap.policy.Decide(ctx, &in)
			if err != nil {
				return nil, err
			}
			shown = answer.Allow && !held[item.Name]
			known[item.Name] = shown
		}
		out[i] = shown
	}
	return out, nil
}

// live asks again whether the caller may still be answered. Of a stream the
// index takes care: what ends its credential ends it, however old it is.
func (f *listFilter) live() (*Snapshot, error) {
	if f.stream {
		return f.g.server.live(f.n.Server, tokenKey(f.n.Credential).Hash(), f.n.expires())
	}
	return f.g.server.stillLive(f.n)
}

// callOfItem is the call that would use an item of a list.
func callOfItem(kind lists.Kind, name, version string) *policies.Call {
	call := policies.Call{ProtocolVersion: version}
	switch kind {
	case lists.Tools:
		call.Method, call.Tool = "tools/call", name
	case lists.Prompts:
		call.Method, call.Prompt = "prompts/get", name
	case lists.Resources:
		call.Method, call.Resource = "resources/read", name
	case lists.Templates:
		call.Method, call.Template = "resources/read", name
	}
	return &call
}
