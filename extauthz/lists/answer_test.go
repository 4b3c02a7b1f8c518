package lists_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/lists"
)

func TestAnswerGoesOnWhenItIsWhole(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"a list", listX, listNo},
		{"a batch", " \r\n[" + listX + "," + ping + "]\n", " \r\n[" + listNo + "," + ping + "]\n"},
		{"brackets in strings", `{"x":"}]\"}","y\\":"\\"}`, `{"x":"}]\"}","y\\":"\\"}`},
		{"blanks around", "\n\t" + listX + " \r\n ", "\n\t" + listNo + " \r\n "},
	} {
		t.Run(test.name, func(t *testing.T) {
			ends := len(strings.TrimRight(test.in, " \r\n"))
			for i := range test.in {
				a := lists.NewAnswer(hiding("x"))
				first, err := a.Next([]byte(test.in[:i]), false)
				if err != nil || (len(first) > 0) != (i >= ends) || a.Begun() != (i >= ends) {
					t.Fatalf("split at %d: %q, begun %v, %v", i, first, a.Begun(), err)
				}
				second, err := a.Next([]byte(test.in[i:]), false)
				if err != nil || strings.TrimSpace(string(first)+string(second)) != strings.TrimSpace(test.want) {
					t.Fatalf("split at %d: %q, %q, %v", i, first, second, err)
				}
				if rest, err := a.Next(nil, true); len(rest) > 0 || err != nil || a.Held() > 0 {
					t.Fatalf("the end gave %q, %v", rest, err)
				}
			}
			whole, err := lists.NewAnswer(hiding("x")).Next([]byte(test.in), true)
			if err != nil || string(whole) != test.want {
				t.Errorf("at once: %q, %v", whole, err)
			}
		})
	}
}

func TestAnswerRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		chunks []string
		reason string
	}{
		{"cut off", []string{listX[:20], ""}, lists.ReasonInvalid},
		{"nothing", []string{""}, lists.ReasonInvalid},
		{"blanks only", []string{" ", "\n"}, lists.ReasonInvalid},
		{"a scalar", []string{"7", "8"}, lists.ReasonNotMessage},
		{"a string", []string{`"{}"`, ""}, lists.ReasonNotMessage},
		{"closed too early", []string{"}", "{"}, lists.ReasonInvalid},
		{"the wrong bracket", []string{`{"a":1]`, ""}, lists.ReasonInvalid},
		{"a second message at once", []string{listNo + listX, ""}, lists.ReasonInvalid},
		{"a second message later", []string{listNo, listX}, lists.ReasonInvalid},
		{"a second message far behind", []string{listNo, "\n", " x"}, lists.ReasonInvalid},
		{"too long", []string{listX[:20], strings.Repeat(" ", lists.Most)}, lists.ReasonTooLong},
		{"too long a string", []string{`{"x":"` + strings.Repeat("x", lists.Most-10), strings.Repeat("x", 20)}, lists.ReasonTooLong},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := lists.NewAnswer(hiding("x"))
			var out string
			var err error
			for i, chunk := range test.chunks {
				var got []byte
				if got, err = a.Next([]byte(chunk), i == len(test.chunks)-1); err != nil {
					break
				}
				out += string(got)
			}
			refused, ok := errors.AsType[*lists.Refusal](err)
			if !ok || refused.Reason != test.reason || a.Held() != 0 {
				t.Errorf("%v, holds %d; want %s", err, a.Held(), test.reason)
			}
			if out != "" && out != listNo {
				t.Errorf("gave %q", out)
			}
			if again, err := a.Next([]byte(listNo), true); len(again) > 0 || err == nil {
				t.Errorf("it went on with %q, %v", again, err)
			}
		})
	}
}
