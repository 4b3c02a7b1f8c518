package testfleet

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Sizes and pauses of the behaviours.
const (
	hugeHeader  = 80 << 10              // bytes: over Envoy's default of 60 KiB
	bigOpener   = 300 << 10             // bytes: over the 256 KiB that are read of an answer to initialize
	streamPause = 20 * time.Millisecond // between two events, or two bytes of what dribbles
)

// behaviour answers one request; the connection is closed when it returns.
type behaviour func(c *wireConn, r Request)

func behaviours() map[string]behaviour {
	return map[string]behaviour{
		// Statuses that are not the caller's business.
		"401": says(answer("401 Unauthorized", []string{
			`WWW-Authenticate: Bearer realm="evil", resource_metadata="https://evil.example/"`, "Content-Type: application/json",
		}, `{"error":"log in at evil.example"}`)),
		"407":        says(answer("407 Proxy Authentication Required", []string{`Proxy-Authenticate: Basic realm="evil"`}, "")),
		"301":        says(redirect("301 Moved Permanently")),
		"302":        says(redirect("302 Found")),
		"307":        says(redirect("307 Temporary Redirect")),
		"204":        says("HTTP/1.1 204 No Content\r\n\r\n"),
		"html-200":   says(answer("200 OK", []string{"Content-Type: text/html"}, page)),
		"html-500":   says(answer("500 Internal Server Error", []string{"Content-Type: text/html"}, page)),
		"json-500":   says(answer("500 Internal Server Error", []string{"Content-Type: application/json"}, `{"secret":"stack trace"}`)),
		"empty-200":  says(answer("200 OK", nil, "")),
		"empty-json": says(answer("200 OK", []string{"Content-Type: application/json"}, "")),
		"not-json":   says(answer("200 OK", []string{"Content-Type: application/json"}, page)),

		// Headers that would speak for the gateway, or to the browser.
		"cookie":      decorated("Set-Cookie: session=stolen; Domain=localhost; Path=/"),
		"headers":     decorated(speakingHeaders()...),
		"huge-header": decorated("X-Huge: " + strings.Repeat("h", hugeHeader)),

		// Bytes that are not an answer, or not all of one.
		"garbage":              says("\x00\xff\x16\x03\x01 this is not HTTP \r\n\r\n\r\n"),
		"close":                says(""),
		"close-in-headers":     says("HTTP/1.1 200 OK\r\nContent-Type: application/js"),
		"close-in-body":        says("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"jsonrpc\":\"2.0\","),
		"close-in-chunk":       says("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(`{"jsonrpc":`)),
		"two-lengths":          says("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}"),
		"length-and-chunks":    says("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("{}") + "0\r\n\r\n"),
		"length-too-small":     says("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nX-Smuggled: 1\r\nContent-Length: 0\r\n\r\n"),
		"http-1.0":             http10,
		"informational":        informational,
		"trailers":             trailers,
		"gzip":                 gzipped,
		"hang":                 hang,
		"hang-after-headers":   hangAfterHeaders,
		"dribble":              dribble,
		"endless-202":          endless("202 Accepted", "", "x"),
		"endless-json":         endless("200 OK", "Content-Type: application/json\r\n", " "),
		"switching-protocols":  says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
		"answer-of-another-id": says(jsonAnswer(`{"jsonrpc":"2.0","id":"another","result":{}}`)),

		// Streams.
		"sse":          stream(0),
		"sse-cut":      stream(3),
		"sse-half":     says("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("data: {\"jsonrpc\":")),
		"sse-nonsense": says(answer("200 OK", []string{"Content-Type: text/event-stream"}, page)),

		// Sessions.
		"session-everywhere": withSession("upstream-session"),
		"session-256":        withSession(strings.Repeat("s", 256)),
		"session-1024":       withSession(strings.Repeat("s", 1024)),
		"session-1025":       withSession(strings.Repeat("s", 1025)),
		"session-2048":       withSession(strings.Repeat("s", 2048)),
		"session-control":    withSession("up\x01stream\x7f"),
		"session-latin-1":    withSession("up\xe9stream"),
		"session-space":      withSession("up stream"),
		"session-tab":        withSession("up\tstream"),
		"session-empty":      withSession(""),
		"session-twice":      withSession("first", "Mcp-Session-Id: second"),
		"session-none":       saysTo(func(r Request) string { return jsonAnswer(opened(r, "")) }),
		"opener-sse":         openerSSE,
		"opener-big":         saysTo(func(r Request) string { return jsonAnswer(opened(r, strings.Repeat("p", bigOpener)), sessionLine) }),
		"opener-error":       saysTo(openerError),
		"opener-sse-error":   openerSSEError,
		"opener-cut":         saysTo(openerCut),
		"opener-dribble":     openerDribble,
		"opener-202":         says("HTTP/1.1 202 Accepted\r\n" + sessionLine + "\r\nContent-Length: 0\r\n\r\n"),
	}
}

const (
	page        = "<!doctype html><title>evil</title><script>fetch('https://evil.example/')</script>"
	sessionLine = "Mcp-Session-Id: upstream-session"
	jsonChunked = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
	sseChunked  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
)

// says writes the same bytes whatever was asked.
func says(text string) behaviour {
	return func(c *wireConn, _ Request) { _ = c.send("%s", text) }
}

// saysTo writes bytes that depend on the request.
func saysTo(text func(Request) string) behaviour {
	return func(c *wireConn, r Request) { _ = c.send("%s", text(r)) }
}

func redirect(status string) string {
	return answer(status, []string{"Location: https://evil.example/mcp", "Content-Type: application/json"}, "{}")
}

// opened is the decent answer to whatever r is, handshake included.
func opened(r Request, padding string) string {
	if m := r.message(); m.Method != "initialize" {
		return result(m)
	}
	return initializeResult(r.message(), padding)
}

// decorated answers decently but for the header lines.
func decorated(lines ...string) behaviour {
	return saysTo(func(r Request) string { return jsonAnswer(opened(r, ""), lines...) })
}

func withSession(session string, lines ...string) behaviour {
	return decorated(append(lines, "Mcp-Session-Id: "+session)...)
}

func speakingHeaders() []string {
	return []string{
		"Arbiter-Decision: allow", "Arbiter-Request-Id: forged", "X-Arbiter-Principal-Id: forged",
		"Access-Control-Allow-Origin: *", "Access-Control-Allow-Credentials: true", `Clear-Site-Data: "*"`,
		"Location: https://evil.example/", "Refresh: 0; url=https://evil.example/", "Strict-Transport-Security: max-age=0",
		`Alt-Svc: h3="evil.example:443"`, `WWW-Authenticate: Basic realm="evil"`, `Proxy-Authenticate: Basic realm="evil"`,
		"Proxy-Authentication-Info: evil", "X-Content-Type-Options: sniff", "X-Envoy-Upstream-Service-Time: 1", "Server: evil/1.0",
	}
}

func http10(c *wireConn, r Request) {
	_ = c.send("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n%s", opened(r, ""))
}

func informational(c *wireConn, r Request) {
	_ = c.send("HTTP/1.1 103 Early Hints\r\nLink: </evil.css>; rel=preload\r\nSet-Cookie: early=1\r\n\r\n%s", jsonAnswer(opened(r, "")))
}

func trailers(c *wireConn, r Request) {
	_ = c.send("%sTrailer: Arbiter-Decision, Set-Cookie\r\n\r\n%s0\r\nArbiter-Decision: allow\r\nSet-Cookie: late=1\r\n\r\n",
		jsonChunked, chunk(opened(r, "")))
}

func gzipped(c *wireConn, r Request) {
	var body bytes.Buffer
	zipper := gzip.NewWriter(&body)
	_, _ = fmt.Fprint(zipper, opened(r, "")) // a bytes.Buffer takes everything
	_ = zipper.Close()
	_ = c.send("%s", jsonAnswer(body.String(), "Content-Encoding: gzip"))
}

func hang(c *wireConn, _ Request) { c.untilGone() }

func hangAfterHeaders(c *wireConn, _ Request) {
	if c.send("%s\r\n", jsonChunked) == nil {
		c.untilGone()
	}
}

// dribble sends a decent answer, byte by byte.
func dribble(c *wireConn, r Request) { dribbled(c, r, "") }

func openerDribble(c *wireConn, r Request) { dribbled(c, r, sessionLine+"\r\n") }

func dribbled(c *wireConn, r Request, lines string) {
	if c.send("%s%s\r\n", jsonChunked, lines) != nil {
		return
	}
	for _, b := range []byte(opened(r, "")) {
		if c.pause() || c.send("%s", chunk(string(b))) != nil {
			return
		}
	}
	_ = c.send("0\r\n\r\n")
}

// endless sends headers and then, for ever, the same text.
func endless(status, lines, text string) behaviour {
	return func(c *wireConn, _ Request) {
		err := c.send("HTTP/1.1 %s\r\n%sTransfer-Encoding: chunked\r\n\r\n", status, lines)
		for err == nil && !c.pause() {
			err = c.send("%s", chunk(text))
		}
	}
}

// stream sends events until the peer is gone, or breaks off after some (0: never).
func stream(events int) behaviour {
	return func(c *wireConn, _ Request) {
		err := c.send("%s\r\n", sseChunked)
		for n := 1; err == nil && (events == 0 || n <= events) && !c.pause(); n++ {
			err = c.send("%s", chunk(event(n)))
		}
	}
}

func openerSSE(c *wireConn, r Request) {
	_ = c.send("%s%s\r\n\r\n%s0\r\n\r\n", sseChunked, sessionLine, chunk("event: message\ndata: "+opened(r, "")+"\n\n"))
}

func openerSSEError(c *wireConn, r Request) {
	_ = c.send("%s%s\r\n\r\n%s0\r\n\r\n", sseChunked, sessionLine, chunk("event: message\ndata: "+rpcFault(r)+"\n\n"))
}

func openerError(r Request) string { return jsonAnswer(rpcFault(r), sessionLine) }

// openerCut promises more than it sends, after a whole JSON value.
func openerCut(r Request) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%s\r\nContent-Length: 100000\r\n\r\n%s", sessionLine, opened(r, ""))
}

func rpcFault(r Request) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no session for you"}}`, id(r.message()))
}

// pause waits a moment and says whether the peer went meanwhile.
func (c *wireConn) pause() bool {
	if c.SetReadDeadline(time.Now().Add(streamPause)) != nil {
		return true
	}
	_, err := c.in.Peek(1)
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}
