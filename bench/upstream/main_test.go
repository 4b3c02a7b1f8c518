package main

import (
	"bufio"
	"errors"
	"strings"
	"testing"
)

// One reader, several requests behind each other: each body is skipped whole.
func TestRespond(t *testing.T) {
	in := bufio.NewReader(strings.NewReader("POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{}\n" +
		"POST /sse HTTP/1.1\r\ncontent-length:2\r\n\r\n{}" + "GET /sse HTTP/1.1\r\n\r\n" + "POST /json HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"))
	for i, want := range []string{asJSON, asStream, idle} {
		if got, err := respond(in); err != nil || got != want {
			t.Errorf("request %d: %q, %v", i, got, err)
		}
	}
	if _, err := respond(in); !errors.Is(err, errChunked) {
		t.Errorf("chunked: %v", err)
	}
}

func TestOnlyLoopback(t *testing.T) {
	if err := serve("192.0.2.1:0"); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("listening elsewhere: %v", err)
	}
}
