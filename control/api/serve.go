package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// How long the body of a request may be, in bytes (contract section 4).
const (
	noBody     = 0
	smallBody  = 64 << 10
	policyBody = 12 << 20 // a policy's files as JSON
)

// reply is what an endpoint answers.
type reply struct {
	status  int // 0: 200
	body    any // raw []byte is sent as it is
	noStore bool
}

type callerKey struct{}

// WithCaller says who is calling, for the log: "admin socket uid 0". Whoever
// serves the handler sets it once it has made sure that the caller may do
// everything; without it every request is refused.
func WithCaller(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

func caller(ctx context.Context) string {
	who, _ := ctx.Value(callerKey{}).(string)
	return who
}

// serve is what all endpoints share: who is calling, query, body, answer.
func (a *api) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := admit(rt, w, r)
		var out reply
		if err == nil {
			out, err = rt.serve(a, r, body)
		}
		if err != nil {
			a.writeProblem(w, r, err)
			return
		}
		a.writeReply(w, r, out)
	})
}

// refuse answers every request with one status.
func (a *api) refuse(status int, header http.Header) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if caller(r.Context()) == "" {
			a.writeProblem(w, r, errNoCaller)
			return
		}
		for name, values := range header {
			w.Header()[name] = values
		}
		a.writeProblem(w, r, &failure{status: status})
	})
}

// admit refuses what no endpoint takes, in order, and reads the body.
func admit(rt route, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if caller(r.Context()) == "" {
		return nil, errNoCaller
	}
	if err := checkQuery(rt, r); err != nil {
		return nil, err
	}
	if rt.body == noBody {
		if r.ContentLength != 0 {
			return nil, &failure{status: http.StatusBadRequest, detail: "this takes no body"}
		}
		return nil, nil
	}
	if err := checkMediaType(r.Header["Content-Type"]); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(rt.body)))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return nil, &failure{status: http.StatusRequestEntityTooLarge, detail: "the body is longer than " + sizeText(rt.body)}
		}
		return nil, &failure{status: http.StatusBadRequest, detail: "the body ended early"}
	}
	return body, nil
}

func checkQuery(rt route, r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &failure{status: http.StatusBadRequest, detail: "the query is malformed"}
	}
	var found faults
	for key, values := range query {
		switch {
		case !slices.Contains(rt.query, key):
			found.add(key, "not a query parameter of this")
		case len(values) > 1:
			found.add(key, "given more than once")
		}
	}
	return found.err()
}

// checkMediaType wants application/json, with charset absent or utf-8.
func checkMediaType(values []string) error {
	if len(values) == 1 {
		media, params, err := mime.ParseMediaType(values[0])
		charset, named := params["charset"]
		if err == nil && media == "application/json" && (!named || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return &failure{status: http.StatusUnsupportedMediaType, detail: "the body must be application/json"}
}

func (a *api) writeReply(w http.ResponseWriter, r *http.Request, out reply) {
	body, raw := out.body.([]byte)
	if !raw {
		var err error
		if body, err = encode(out.body); err != nil {
			a.writeProblem(w, r, err)
			return
		}
	}
	if out.noStore {
		w.Header().Set("Cache-Control", "no-store")
	}
	if out.status == 0 {
		out.status = http.StatusOK
	}
	write(w, out.status, "application/json", body)
}

func write(w http.ResponseWriter, status int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that went away misses an answer, nothing else
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	err := json.MarshalWrite(&out, v, json.Deterministic(true), jsontext.Multiline(true), jsontext.WithIndent("  "))
	out.WriteByte('\n')
	return out.Bytes(), err
}

func sizeText(bytes int) string {
	if bytes >= 1<<20 {
		return strconv.Itoa(bytes>>20) + " MiB"
	}
	return strconv.Itoa(bytes>>10) + " KiB"
}
