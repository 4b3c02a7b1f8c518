package envoy

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
)

// logFormat makes Envoy write "level|component|message" lines.
const logFormat = "%l|%n|%v"

// maxLine is how much of a line of Envoy is kept.
const maxLine = 8 << 10

// lineLog turns what Envoy writes into log records. exec.Cmd calls Write from
// one goroutine, because stdout and stderr are the same writer.
type lineLog struct {
	log  *slog.Logger
	rest []byte
}

func newLineLog(log *slog.Logger) *lineLog { return &lineLog{log: log.With("process", "envoy")} }

// Write implements io.Writer.
func (l *lineLog) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			if len(l.rest) > maxLine {
				l.Close()
			}
			return len(p), nil
		}
		l.emit(string(line))
		l.rest = rest
	}
}

// Close logs what came without a line end.
func (l *lineLog) Close() {
	if len(l.rest) > 0 {
		l.emit(string(l.rest))
		l.rest = nil
	}
}

func (l *lineLog) emit(line string) {
	level, component, message := slog.LevelWarn, "", line // a crash's stack has no format
	if parts := strings.SplitN(line, "|", 3); len(parts) == 3 {
		level, component, message = levelOf(parts[0]), parts[1], parts[2]
	}
	if message == "" {
		return
	}
	if len(message) > maxLine {
		message = message[:maxLine]
	}
	l.log.Log(context.Background(), level, message, "component", component)
}

func levelOf(name string) slog.Level {
	switch name {
	case "trace", "debug":
		return slog.LevelDebug
	case "info":
		return slog.LevelInfo
	case "warning":
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}
