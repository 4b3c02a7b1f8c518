package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/arbiter-gateway/arbiter/extauthz/wire"
)

// read is what wire.Read says, as text: the lines of headers, then the rest.
func read(message []byte) (string, error) {
	var lines strings.Builder
	r, err := wire.Read(message, func(name, value []byte) { fmt.Fprintf(&lines, "%q: %q\n", name, value) })
	if err != nil {
		return "", err
	}
	return lines.String() + fmt.Sprintf("%q %q %q %d %q", r.Method, r.Path, r.Host, r.Size, r.Body), nil
}

// fields are the fields that Read knows, of each message. Only a message type
// of these and no others, under protobuf's own reader, steps over the rest as
// Read does.
var fields = map[protoreflect.FullName][]protoreflect.Name{
	"envoy.service.auth.v3.CheckRequest":                 {"attributes"},
	"envoy.service.auth.v3.AttributeContext":             {"request"},
	"envoy.service.auth.v3.AttributeContext.Request":     {"http"},
	"envoy.service.auth.v3.AttributeContext.HttpRequest": {"method", "path", "host", "size", "raw_body", "header_map"},
	"envoy.config.core.v3.HeaderMap":                     {"headers"},
	"envoy.config.core.v3.HeaderValue":                   {"key", "value", "raw_value"},
}

// reduced makes the message type of CheckRequest out of Envoy's own
// descriptors, with only those fields.
func reduced(t testing.TB) protoreflect.MessageDescriptor {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("reduced.proto"), Syntax: proto.String("proto3"), Package: proto.String("reduced"),
	}
	add := func(m protoreflect.MessageDescriptor) {
		out := &descriptorpb.DescriptorProto{Name: proto.String(string(m.Name()))}
		for _, name := range fields[m.FullName()] {
			field := protodesc.ToFieldDescriptorProto(m.Fields().ByName(name))
			field.Options, field.OneofIndex = nil, nil
			if kind := m.Fields().ByName(name).Message(); kind != nil {
				field.TypeName = proto.String(".reduced." + string(kind.Name()))
			}
			out.Field = append(out.Field, field)
		}
		file.MessageType = append(file.MessageType, out)
	}
	for _, m := range []proto.Message{
		&authv3.CheckRequest{}, &authv3.AttributeContext{}, &authv3.AttributeContext_Request{},
		&authv3.AttributeContext_HttpRequest{}, &corev3.HeaderMap{}, &corev3.HeaderValue{},
	} {
		add(m.ProtoReflect().Descriptor())
	}
	made, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return made.Messages().ByName("CheckRequest")
}

// generated is what protobuf's own reader makes of a message, in the form of
// read.
func generated(kind protoreflect.MessageDescriptor, message []byte) (string, error) {
	in := dynamicpb.NewMessage(kind)
	if err := proto.Unmarshal(message, in); err != nil {
		return "", err
	}
	var m protoreflect.Message = in
	for _, name := range []protoreflect.Name{"attributes", "request", "http"} {
		field := m.Descriptor().Fields().ByName(name)
		if !m.Has(field) {
			return "", errors.New("no " + string(name))
		}
		m = m.Get(field).Message()
	}
	get := func(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(name))
	}
	var lines strings.Builder
	list := get(get(m, "header_map").Message(), "headers").List()
	for i := range list.Len() {
		line := list.Get(i).Message()
		value := get(line, "raw_value").Bytes()
		if len(value) == 0 {
			value = []byte(get(line, "value").String())
		}
		fmt.Fprintf(&lines, "%q: %q\n", get(line, "key").String(), value)
	}
	return lines.String() + fmt.Sprintf("%q %q %q %d %q", get(m, "method").String(), get(m, "path").String(),
		get(m, "host").String(), get(m, "size").Int(), get(m, "raw_body").Bytes()), nil
}

// whole is a request as Envoy sends it, with fields that Read does not know.
func whole() []byte {
	out, err := proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Service: "a", Principal: "b"},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Id: "1", Method: "POST", Path: "/a?b", Host: "c:1", Scheme: "https", Protocol: "HTTP/2", Size: 7, RawBody: []byte("{\"a\":1}"),
			Headers: map[string]string{"old": "form"},
			HeaderMap: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
				{Key: "a", RawValue: []byte{0xff, 0}},
				{Key: "b", Value: "plain"},
				{Key: "both", Value: "lost", RawValue: []byte("raw")},
				{Key: "a", RawValue: []byte("again")},
				{Key: "empty"},
			}},
		}},
		ContextExtensions: map[string]string{"x": "y"},
	}})
	if err != nil {
		panic(err)
	}
	return out
}

func TestRead(t *testing.T) {
	got, err := read(whole())
	want := "\"a\": \"\\xff\\x00\"\n\"b\": \"plain\"\n\"both\": \"raw\"\n\"a\": \"again\"\n\"empty\": \"\"\n" +
		`"POST" "/a?b" "c:1" 7 "{\"a\":1}"`
	if err != nil || got != want {
		t.Errorf("read %v\n%s\nwant\n%s", err, got, want)
	}
}

// message is fields of one number each in another message.
func message(path []protowire.Number, inner []byte) []byte {
	for i := len(path) - 1; i >= 0; i-- {
		inner = protowire.AppendBytes(protowire.AppendTag(nil, path[i], protowire.BytesType), inner)
	}
	return inner
}

func text(number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

var (
	http = []protowire.Number{1, 4, 2}
	line = []protowire.Number{1, 4, 2, 13, 1}
)

// rows are messages that somebody could have made otherwise than Envoy does.
var rows = []struct {
	name string
	in   []byte
	want string // "" is malformed
}{
	{"nothing", nil, ""},
	{"no HTTP request", message([]protowire.Number{1, 4}, nil), ""},
	{"an empty HTTP request", message(http, nil), `"" "" "" 0 ""`},
	{"the HTTP request as a number", message([]protowire.Number{1, 4}, []byte{2 << 3, 1}), ""},
	{"cut", whole()[:40], ""},
	{"a length beyond the end", []byte{1<<3 | 2, 5, 0}, ""},
	{"an endless varint", append([]byte{1 << 3}, bytes.Repeat([]byte{0xff}, 11)...), ""},
	{"field number 0", message(http, []byte{0<<3 | 2, 0}), ""},
	{"a field number too large", message(http, append(protowire.AppendVarint(nil, (1<<29)<<3), 0)), ""},
	{"the end of a group that never began", message(http, []byte{1<<3 | 4}), ""},
	{"a method that is not UTF-8", message(http, text(2, "\xff")), ""},
	{"a path that is not UTF-8", message(http, text(4, "/\xc3")), ""},
	{"a host that is not UTF-8", message(http, text(5, "\xff")), ""},
	{"a header name that is not UTF-8", message(line, text(1, "\xff")), ""},
	{"a header value that is not UTF-8", message(line, text(2, "\xff")), ""},
	{"a raw header value that is not", message(line, text(3, "\xff")), "\"\": \"\\xff\"\n" + `"" "" "" 0 ""`},
	{"a group of a known number", message(http, append(append([]byte{4<<3 | 3}, text(4, "/no")...), 4<<3|4)), `"" "" "" 0 ""`},
	{"a path as a number", message(http, []byte{4 << 3, 7}), `"" "" "" 0 ""`},
	{"two paths: the last", message(http, append(text(4, "/a"), text(4, "/b")...)), `"" "/b" "" 0 ""`},
	{"two bodies: the last", message(http, append(text(12, "a"), text(12, "b")...)), `"" "" "" 0 "b"`},
	{
		"two HTTP requests: merged", append(message(http, text(4, "/a")), message(http, text(2, "GET"))...),
		`"GET" "/a" "" 0 ""`,
	},
	{
		"two header maps: merged", append(message(line, text(1, "a")), message(line, text(1, "b"))...),
		"\"a\": \"\"\n\"b\": \"\"\n" + `"" "" "" 0 ""`,
	},
	{"a body in the field for text", message(http, text(11, "no")), `"" "" "" 0 ""`},
	{"a size below zero", message(http, protowire.AppendVarint([]byte{9 << 3}, 1<<64-1)), `"" "" "" -1 ""`},
}

func TestReadOfWhatEnvoyDoesNotSend(t *testing.T) {
	kind := reduced(t)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := read(row.in)
			if got != row.want || (err != nil) != (row.want == "") {
				t.Errorf("read %q, %v; want %q", got, err, row.want)
			}
			if row.want == "" && !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("the error is %v", err)
			}
			if theirs, err := generated(kind, row.in); theirs != row.want || (err != nil) != (row.want == "") {
				t.Errorf("protobuf's own reader: %q, %v", theirs, err)
			}
		})
	}
}

// FuzzRead holds that a message is to Read exactly what it is to protobuf's own
// reader: the same request, or malformed to both.
func FuzzRead(f *testing.F) {
	kind := reduced(f)
	f.Add(whole())
	for _, row := range rows {
		f.Add(row.in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		ours, err := read(in)
		theirs, theirErr := generated(kind, in)
		if ours != theirs || (err != nil) != (theirErr != nil) {
			t.Errorf("read %q, %v\nprotobuf %q, %v", ours, err, theirs, theirErr)
		}
		if !bytes.Equal(in, before) {
			t.Error("the message was changed")
		}
	})
}
