package lists_test

import (
	"bytes"
	"encoding/json" // a careless reader
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// message is what a reader of an event stream gives to its user.
type message struct{ event, id, data string }

// standard reads a stream as WHATWG HTML, section 9.2.6, spells it out, a
// character at a time: nothing of it is shared with what it tests.
func standard(in string) (out []message) {
	in = strings.ToValidUTF8(in, "\ufffd")
	in = strings.TrimPrefix(in, "\ufeff")
	var data, event, id, line string
	end := func() {
		name, value, found := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != "" {
				out = append(out, message{event, id, strings.TrimSuffix(data, "\n")})
			}
			data, event = "", ""
		case found && name == "":
		case name == "event":
			event = value
		case name == "data":
			data += value + "\n"
		case name == "id" && !strings.Contains(value, "\x00"):
			id = value
		}
		line = ""
	}
	for i := 0; i < len(in); i++ {
		switch {
		case in[i] == '\n':
			end()
		case in[i] == '\r':
			end()
			if i+1 < len(in) && in[i+1] == '\n' {
				i++
			}
		default:
			line += in[i : i+1]
		}
	}
	return out
}

// careless are readers that are out there, or could be.
var careless = map[string]func(string) []string{
	"ends lines where Python does": func(in string) []string {
		return dataOf(regexp.MustCompile("\r\n|[\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029]").Split(in, -1))
	},
	"ends lines at LF only": func(in string) []string { return dataOf(strings.Split(in, "\n")) },
	"each data line alone": func(in string) (out []string) {
		for line := range strings.Lines(in) {
			if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found && strings.EqualFold(strings.TrimSpace(name), "data") {
				out = append(out, value)
			}
		}
		return out
	},
	"folds names, flushes at the end": func(in string) []string {
		var lines []string
		for line := range strings.SplitSeq(strings.ReplaceAll(in, "\r", "\n"), "\n") {
			name, value, _ := strings.Cut(strings.Trim(line, " \t\x00\ufeff"), ":")
			lines = append(lines, strings.ToLower(strings.TrimSpace(name))+":"+value)
			if line == "" {
				lines[len(lines)-1] = ""
			}
		}
		return dataOf(append(lines, ""))
	},
	"splits at an empty LF line": func(in string) (out []string) {
		for event := range strings.SplitSeq(in, "\n\n") {
			out = append(out, dataOf(append(strings.Split(event, "\n"), ""))...)
		}
		return out
	},
}

// dataOf joins the data of each event.
func dataOf(lines []string) (out []string) {
	var data []string
	for _, line := range lines {
		if strings.TrimSuffix(line, "\r") == "" {
			out, data = append(out, strings.Join(data, "\n")), nil
			continue
		}
		if value, found := strings.CutPrefix(line, "data:"); found {
			data = append(data, value)
		}
	}
	return out
}

// listed are the names in a message as encoding/json reads it: it folds the case
// of keys and takes the last of two.
func listed(data string) (names []string) {
	type item struct{ Name, URI, URITemplate string }
	type answer struct {
		Result struct{ Tools, Prompts, Resources, ResourceTemplates []item }
	}
	var batch []answer
	var one answer
	if json.Unmarshal([]byte(data), &one) == nil {
		batch = append(batch, one)
	} else if json.Unmarshal([]byte(data), &batch) != nil {
		return nil
	}
	for _, a := range batch {
		for _, i := range slices.Concat(a.Result.Tools, a.Result.Prompts, a.Result.Resources, a.Result.ResourceTemplates) {
			names = append(names, i.Name+i.URI+i.URITemplate)
		}
	}
	return names
}

// checkNobodySees expects that no reader finds an item in a stream whose name
// begins with hidden.
func checkNobodySees(t interface {
	Helper()
	Errorf(string, ...any)
}, in, out, hidden string,
) {
	t.Helper()
	look := func(reader string, data []string) {
		for _, d := range data {
			if names := listed(d); slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, hidden) }) {
				t.Errorf("a reader that %s finds %q in\n%q\nwhich was\n%q", reader, names, out, in)
			}
		}
	}
	var data []string
	for _, m := range standard(out) {
		data = append(data, m.data)
	}
	look("follows the standard", data)
	for reader, read := range careless {
		look(reader, read(out))
	}
	if !utf8.ValidString(out) || bytes.ContainsAny([]byte(out), "\v\f\x00") {
		t.Errorf("out is no clean text: %q", out)
	}
}

func TestTheReadersRead(t *testing.T) {
	in := "\ufeffid: 1\ndata: {\"result\":{\"tools\":\r\ndata:[{\"name\":\"x\"}]}}\r\r: c\ndata\n\ndata: {\"a\":1}"
	got := standard(in)
	if want := []message{{"", "1", "{\"result\":{\"tools\":\n[{\"name\":\"x\"}]}}"}, {"", "1", ""}}; !slices.Equal(got, want[:1]) && !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if names := listed(got[0].data); !slices.Equal(names, []string{"x"}) {
		t.Errorf("listed %q", names)
	}
	for reader, read := range careless {
		if data := read("data: {\"result\":{\"TOOLS\":[{\"name\":\"x\"}]}}\n\n"); !slices.ContainsFunc(data, func(d string) bool { return len(listed(d)) > 0 }) {
			t.Errorf("%s reads %q", reader, data)
		}
	}
}
