// Command upstream is the cheapest MCP server that the benchmark can put behind
// a gateway: it reads HTTP/1.1 by hand, understands nothing, and answers each
// request with the same bytes.
//
// Place in the flow: it is the upstream of every arm, a process of its own so
// that its CPU stands apart. It trusts whoever reaches its loopback address; it
// has nothing to give away.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

// answer suits every request that the benchmark sends, initialize and
// tools/call alike, all of them with id 1.
const answer = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
	`"serverInfo":{"name":"bench","version":"1"},"content":[{"type":"text","text":"the answer of a tool"}]}}`

// The three ways to answer, by the request's line.
var (
	asJSON = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: " +
		strconv.Itoa(len(answer)) + "\r\n\r\n" + answer
	streamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
	event      = "event: message\ndata: " + answer + "\n\n"
	asStream   = streamHead + chunk(event) + "0\r\n\r\n"
	idle       = streamHead + chunk(": open\n\n") // and no end
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "loopback ip:port")
	flag.Parse()
	fmt.Fprintln(os.Stderr, "upstream:", serve(*listen))
	os.Exit(1)
}

// serve prints the address and answers until it is killed; it returns only an
// error.
func serve(listen string) error {
	addr, err := net.ResolveTCPAddr("tcp", listen)
	if err != nil {
		return err
	}
	if !addr.IP.IsLoopback() {
		return fmt.Errorf("%s is not a loopback address", listen)
	}
	listener, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	for {
		conn, err := listener.AcceptTCP()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_ = talk(conn) // a broken connection shows as an error of the load
		}()
	}
}

// talk answers one request after the other.
func talk(conn net.Conn) error {
	in := bufio.NewReaderSize(conn, 16<<10)
	for {
		text, err := respond(in)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(conn, text); err != nil {
			return err
		}
	}
}

// respond reads one request and says what to write: a GET opens a stream that
// says nothing more, /sse is answered with a stream of one event, all else JSON.
func respond(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	text := asJSON
	switch {
	case bytes.HasPrefix(line, []byte("GET ")):
		text = idle
	case bytes.HasPrefix(line, []byte("POST /sse ")):
		text = asStream
	}
	length, err := readHead(in)
	if err != nil {
		return "", err
	}
	_, err = in.Discard(length)
	return text, err
}

var errChunked = errors.New("a chunked request, which the benchmark never sends")

// readHead reads the header lines and returns the body's length.
func readHead(in *bufio.Reader) (length int, err error) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, found := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		switch {
		case !found:
			return length, nil
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			return 0, errChunked
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil || length < 0 {
				return 0, fmt.Errorf("content-length %q", value)
			}
		}
	}
}

func chunk(text string) string {
	return strconv.FormatInt(int64(len(text)), 16) + "\r\n" + text + "\r\n"
}
