package lists_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/lists"
)

// through sends text through a stream in these chunks.
func through(f lists.Filter, chunks ...string) (out string, hidden int, err error) {
	s := lists.NewStream(f)
	for i, chunk := range chunks {
		got, err := s.Next([]byte(chunk), i == len(chunks)-1)
		out += string(got)
		if err != nil {
			return out, s.Hidden(), err
		}
	}
	return out, s.Hidden(), nil
}

const (
	ping   = `{"jsonrpc":"2.0","method":"ping","id":1}`
	listX  = `{"id":7,"result":{"tools":[{"name":"x"},{"name":"a"}]}}`
	listNo = `{"id":7,"result":{"tools":[{"name":"a"}]}}`
)

func TestStream(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"an event", "data: " + ping + "\n\n", ""},
		{"CRLF", "id: 1\r\nevent: message\r\ndata: " + ping + "\r\n\r\n", ""},
		{"no space behind the colon", "id:1\ndata:" + ping + "\n\n", ""},
		{"comments", ": a\n\n:\r\n\r\n: b\ndata: " + ping + "\n: c\n\n", ""},
		{"priming event", "id: 1\ndata: \n\nid: 2\ndata:\nretry: 5\n\nid: 3\n\n", ""},
		{"nothing but ends of lines", "\n\r\n\n", ""},
		{"nothing", "", ""},
		{"a list that is shown whole", "data: " + listNo + "\n\n", ""},
		{"a batch", "data: [" + ping + "]\n\n", ""},

		{"a list", "event: message\nid: 1_2\ndata: " + listX + "\nretry: 5\n\n", "event: message\nid: 1_2\ndata: " + listNo + "\nretry: 5\n\n"},
		{"a list behind CRLF", "id: 1\r\ndata:" + listX + "\r\n\r\n", "id: 1\ndata: " + listNo + "\n\n"},
		{"two lists", "data: " + listX + "\n\ndata: [" + listX + "]\n\n", "data: " + listNo + "\n\ndata: [" + listNo + "]\n\n"},
		{"a list on several lines", "data: {\"id\":7,\"result\":{\ndata:\ndata: \"tools\":[{\"name\":\"x\"},\nid: 1\ndata:{\"name\":\"a\"}]}}\n\n", "data: {\"id\":7,\"result\":{  \"tools\":[{\"name\":\"a\"}]}}\nid: 1\n\n"},

		// What readers differ about is written so that they do not.
		{"several data lines", "data: {\"id\":\ndata: 7}\n\n", "data: {\"id\": 7}\n\n"},
		{"a message on each data line", "data: [\ndata: " + listX + "\ndata: ]\n\n", "data: [ " + listNo + " ]\n\n"},
		{"lone CR", "id: 1\rdata: " + ping + "\r\r: c\rdata: " + listX + "\r\r", "id: 1\ndata: " + ping + "\n\n: c\ndata: " + listNo + "\n\n"},
		{"lone CR as the empty line", "data: " + ping + "\n\r", "data: " + ping + "\n\n"},
		{"ends of both kinds", "id: 1\r\ndata: " + ping + "\n\n", "id: 1\ndata: " + ping + "\n\n"},
		{"byte order mark", "\ufeffdata: " + listX + "\n\n", "data: " + listNo + "\n\n"},
		{"byte order mark before a comment", "\ufeff: c\n\n", ": c\n\n"},
		{"byte order mark and no event", "\ufeff\n", "\n"},
		{"byte order mark later", "data: " + ping + "\n\n\ufeffdata: " + listX + "\n\n", "data: " + ping + "\n\n\n"},
		{"data without a colon", "data\n\n", "data: \n\n"},
		{"data without a colon beside data", "data: " + ping + "\ndata\n\n", "data: " + ping + " \n\n"},
		{"empty data lines", "data:\ndata:\n\n", "data: \n\n"},
		{"names in another case", "Data: " + listX + "\ndata: " + ping + "\n\n", "data: " + ping + "\n\n"},
		{"a name behind a space", " data: " + listX + "\nid: 1\n\n", "id: 1\n\n"},
		{"a name before a space", "data : " + listX + "\n\n", "\n"},
		{"an unknown name", "x: " + listX + "\ndata: " + ping + "\n\n", "data: " + ping + "\n\n"},
		{"NUL in an id", "id: 1\x002\ndata: " + ping + "\n\n", "data: " + ping + "\n\n"},
		{"line separator in a comment", ": \u2028data: " + listX + "\n\n", "\n"},
		{"form feed in a comment", ": \fdata: " + listX + "\ndata: " + ping + "\n\n", "data: " + ping + "\n\n"},
		{"next line in an id", "id: \u0085data: " + listX + "\n\n", "\n"},
		{
			"line separators in a string", "data: {\"x\":\"\u2028\u2028data: " + `{\"id\":7}` + "\u2029\u0085\"}\n\n",
			"data: {\"x\":\"" + `\u2028\u2028data: {\"id\":7}\u2029\u0085` + "\"}\n\n",
		},
		{"invalid UTF-8 in a comment", ": \xff\ndata: " + ping + "\n\n", "data: " + ping + "\n\n"},

		// What has not ended is no event.
		{"without an empty line", "data: " + listX + "\n", "-"},
		{"cut in a line", "data: " + ping + "\n\ndata: " + listX, "data: " + ping + "\n\n"},
		{"comment cut off", ": c", "-"},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := strings.TrimPrefix(test.want, "-")
			if test.want == "" {
				want = test.in
			}
			whole, _, err := through(hiding("x"), test.in)
			if err != nil || whole != want {
				t.Errorf("got  %q, %v\nwant %q", whole, err, want)
			}
			for i := range test.in {
				if out, _, err := through(hiding("x"), test.in[:i], test.in[i:]); out != whole || err != nil {
					t.Errorf("split at %d: %q, %v", i, out, err)
				}
			}
			if out, _, err := through(hiding("x"), append(strings.Split(test.in, ""), "")...); out != whole || err != nil {
				t.Errorf("in single characters: %q, %v", out, err)
			}
			checkNobodySees(t, test.in, whole, "x")
		})
	}
}

func TestStreamRefuses(t *testing.T) {
	for _, test := range []struct{ name, in, reason string }{
		{"no JSON", "data: hello\n\n", lists.ReasonInvalid},
		{"JSON with something behind it", "data: " + ping + "\ndata: " + listX + "\n\n", lists.ReasonInvalid},
		{"a string on two lines", "data: {\"x\":\"\ndata: \"}\n\n", lists.ReasonInvalid},
		{"a second byte order mark", "\ufeff\n\ndata: \ufeff" + ping + "\n\n", lists.ReasonInvalid},
		{"duplicate keys", `data: {"result":{"tools":[],"tools":[{"name":"x"}]}}` + "\n\n", lists.ReasonDuplicate},
		{"a list that is none", `data: {"result":{"tools":{}}}` + "\n\n", lists.ReasonNotArray},
		{"no message", "data: 7\n\n", lists.ReasonNotMessage},
		{"an event without end", "data: " + strings.Repeat("x", lists.Most), lists.ReasonTooLong},
		{"a line without end in an event", "id: 1\n: " + strings.Repeat("x", lists.Most), lists.ReasonTooLong},
		{"lines without end", strings.Repeat("id: 1\n", lists.Most/6+1), lists.ReasonTooLong},
		{"many lines and their end", strings.Repeat("id: 1\n", lists.Most/6+1) + "\n", lists.ReasonTooLong},
		{"a comment without end", ": " + strings.Repeat("x", lists.Most), lists.ReasonTooLong},
		{"an event that is too long and whole", "data: \"" + strings.Repeat("x", lists.Most) + "\"\n\n", lists.ReasonTooLong},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := "data: " + ping + "\n\n"
			for _, half := range []int{0, len(test.in) / 2, len(test.in)} {
				s := lists.NewStream(hiding("x"))
				out, err := s.Next([]byte(before+test.in[:half]), false)
				if err == nil {
					var more []byte
					more, err = s.Next([]byte(test.in[half:]), false)
					out = append(out, more...)
				}
				refused, ok := errors.AsType[*lists.Refusal](err)
				if !ok || refused.Reason != test.reason {
					t.Fatalf("split at %d: %v, want %s", half, err, test.reason)
				}
				if test.name != "a second byte order mark" && string(out) != before {
					t.Errorf("split at %d: what stood before it came as %q", half, out)
				}
				if more, err := s.Next([]byte(before), false); len(more) > 0 || err == nil {
					t.Errorf("it went on with %q, %v", more, err)
				}
				if s.Held() != 0 {
					t.Errorf("it holds %d bytes", s.Held())
				}
			}
		})
	}
}

func TestStreamEndsWithAnErrorOfShow(t *testing.T) {
	broken := errors.New("broken")
	f := lists.Filter{Show: func(lists.Kind, []lists.Item) ([]bool, error) { return nil, broken }}
	out, _, err := through(f, "data: "+ping+"\n\ndata: "+listX+"\n\n")
	if !errors.Is(err, broken) || out != "data: "+ping+"\n\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// An event goes on as soon as it has ended, and a comment with its line: both
// may be all that comes for hours.
func TestStreamHoldsBackNoMoreThanItMust(t *testing.T) {
	s := lists.NewStream(hiding("x"))
	for _, step := range []struct{ in, want string }{
		{": keep alive\n", ": keep alive\n"},
		{"id: 1\ndata: " + ping, ""},
		{"\n\nid: 2\n", "id: 1\ndata: " + ping + "\n\n"},
		{"data: " + listX + "\r", ""},
		{"\n\r\n", "id: 2\ndata: " + listNo + "\n\n"},
		{": a", ""},
		{" b\n", ": a b\n"},
	} {
		got, err := s.Next([]byte(step.in), false)
		if err != nil || string(got) != step.want {
			t.Errorf("%q gave %q, %v; want %q", step.in, got, err, step.want)
		}
	}
	if s.Hidden() != 1 || s.Held() != 0 {
		t.Errorf("hidden %d, holds %d", s.Hidden(), s.Held())
	}
}

// A long event must not make a stream hold its memory for good.
func TestStreamForgetsLongEvents(t *testing.T) {
	s := lists.NewStream(hiding())
	long := `data: {"x":"` + strings.Repeat("x", 1<<20) + "\"}\n\nid: 1\n"
	for chunk := range slices.Chunk([]byte(long), 1<<15) {
		if _, err := s.Next(chunk, false); err != nil {
			t.Fatal(err)
		}
	}
	if s.Held() > 1<<10 {
		t.Errorf("it keeps %d bytes", s.Held())
	}
}
