package store

import (
	"cmp"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// serverColumns, serverRow and scanServer have one order.
const serverColumns = `id, name, enabled, mcp, rpc, ca, legacy, modern, allowed_origins, labels,
	max_body, call_limit, batches, literal_denials, header_names, headers_revision, revision,
	created_at, updated_at, stopped_revision, grants, policy_data, record_arguments, tool_changes`

// serverRow returns the columns of a server, after filling in its defaults.
func serverRow(srv *Server) ([]any, error) {
	srv.Limits.MaxBody = cmp.Or(srv.Limits.MaxBody, DefaultMaxBody)
	srv.Limits.CallLimit = cmp.Or(srv.Limits.CallLimit.Truncate(time.Microsecond), DefaultCallLimit)
	srv.ToolChanges = cmp.Or(srv.ToolChanges, ToolChangesAlarm)
	origins, err1 := listText(srv.AllowedOrigins)
	labels, err2 := mapText(srv.Labels)
	names, err3 := listText(srv.HeaderNames)
	recording, err4 := recordingText(srv.RecordArguments)
	return []any{
		srv.ID.String(), srv.Name, number(srv.Enabled), srv.MCP, srv.RPC, srv.CA,
		number(srv.Legacy), number(srv.Modern), origins, labels,
		int64(srv.Limits.MaxBody), srv.Limits.CallLimit.Microseconds(),
		number(srv.Batches), number(srv.LiteralDenials), names,
		srv.HeadersRevision, srv.Revision, micros(srv.CreatedAt), micros(srv.UpdatedAt),
		srv.StoppedRevision, string(srv.Grants), string(srv.PolicyData), recording, srv.ToolChanges,
	}, errors.Join(err1, err2, err3, err4)
}

func scanServer(row scan) (Server, error) {
	var srv Server
	var id, origins, labels, names, grants, data, recording string
	var callLimit, created, updated int64
	err := row(&id, &srv.Name, &srv.Enabled, &srv.MCP, &srv.RPC, &srv.CA,
		&srv.Legacy, &srv.Modern, &origins, &labels,
		&srv.Limits.MaxBody, &callLimit,
		&srv.Batches, &srv.LiteralDenials, &names,
		&srv.HeadersRevision, &srv.Revision, &created, &updated, &srv.StoppedRevision,
		&grants, &data, &recording, &srv.ToolChanges)
	if err != nil {
		return Server{}, err
	}
	srv.Limits.CallLimit = time.Duration(callLimit) * time.Microsecond
	srv.CreatedAt, srv.UpdatedAt = timeOf(created), timeOf(updated)
	srv.Grants, srv.PolicyData = rawOf(grants), rawOf(data)
	if srv.ID, err = identity.ParseServerID(id); err != nil {
		return Server{}, fault{err}
	}
	srv.RecordArguments, err = parseRecording(recording)
	return srv, errors.Join(err,
		parse(origins, &srv.AllowedOrigins), parse(labels, &srv.Labels), parse(names, &srv.HeaderNames))
}

// rawOf is JSON that is kept as it came; "" is none.
func rawOf(text string) jsontext.Value {
	if text == "" {
		return nil
	}
	return jsontext.Value(text)
}

// recording is how RecordArguments is stored; off is "".
type recording struct {
	Mask        []string `json:"mask"`
	KeepSeconds int64    `json:"keep_seconds"`
}

func recordingText(r *RecordArguments) (string, error) {
	if r == nil {
		return "", nil
	}
	text, err := json.Marshal(recording{r.Mask, int64(r.Keep / time.Second)})
	return string(text), err
}

func parseRecording(text string) (*RecordArguments, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // off
	}
	var r recording
	if err := parse(text, &r); err != nil {
		return nil, err
	}
	out := &RecordArguments{Keep: time.Duration(r.KeepSeconds) * time.Second}
	if len(r.Mask) > 0 {
		out.Mask = r.Mask
	}
	return out, nil
}
