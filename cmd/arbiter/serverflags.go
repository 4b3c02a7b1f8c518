package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// serverFlags are the fields of a server; what is not given is not sent.
type serverFlags struct {
	MCP       *string           `name:"mcp" placeholder:"URL" help:"Upstream for /mcp (streamable HTTP)."`
	RPC       *string           `name:"rpc" placeholder:"URL" help:"Upstream for /rpc (plain JSON-RPC)."`
	CA        *string           `name:"ca" placeholder:"FILE" help:"PEM certificates that verify the upstream; else the system's."`
	Header    []string          `sep:"none" placeholder:"NAME=@FILE" help:"Header for the upstream, its value from FILE (@-: standard input). Repeatable."`
	Eras      []string          `placeholder:"ERA,..." help:"MCP eras: legacy, modern (default legacy)."`
	Origin    []string          `sep:"none" placeholder:"ORIGIN" help:"Origin of pages that may call it. Repeatable."`
	Label     map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"Label. Repeatable; without a value: remove it."`
	MaxBody   *string           `placeholder:"SIZE" help:"Longest request body, as 65536, 64KiB, 4MiB."`
	CallLimit *time.Duration    `placeholder:"TIME" help:"Longest call, as 90s, 10m, 1h."`
	Denials   *string           `placeholder:"FORM" help:"How denials look on /mcp: mcp (keeps sessions alive) or http."`
	Batches   *bool             `negatable:"" help:"Allow JSON-RPC batches in sessions of 2025-03-26."`

	policyFlags
}

type header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// fields makes the body of a create or an update. An empty value takes back
// what was set.
func (f *serverFlags) fields(p *program) (map[string]any, error) {
	out := map[string]any{}
	for name, value := range map[string]*string{"mcp": f.MCP, "rpc": f.RPC, "denials": f.Denials} {
		if value != nil {
			out[name] = orNull(*value)
		}
	}
	if f.Batches != nil {
		out["batches"] = *f.Batches
	}
	if len(f.Eras) > 0 {
		out["eras"] = f.Eras
	}
	if len(f.Origin) > 0 {
		out["allowed_origins"] = withoutEmpty(f.Origin)
	}
	if len(f.Label) > 0 {
		labels := map[string]any{}
		for key, value := range f.Label {
			labels[key] = orNull(value)
		}
		out["labels"] = labels
	}
	return out, errors.Join(f.limits(out), f.files(p, out), f.policyFlags.fields(p, out))
}

func (f *serverFlags) limits(out map[string]any) error {
	limits := map[string]any{}
	if f.MaxBody != nil {
		size, err := parseSize(*f.MaxBody)
		if err != nil {
			return fmt.Errorf("--max-body: %w", err)
		}
		limits["max_body"] = size
	}
	if f.CallLimit != nil {
		if *f.CallLimit%time.Second != 0 {
			return errors.New("--call-limit: must be whole seconds")
		}
		limits["call_limit_seconds"] = int64(*f.CallLimit / time.Second)
	}
	if len(limits) > 0 {
		out["limits"] = limits
	}
	return nil
}

// files reads the CA and the values of headers.
func (f *serverFlags) files(p *program, out map[string]any) error {
	if f.CA != nil {
		out["ca"] = nil
		if *f.CA != "" {
			pem, err := readSmallFile(*f.CA, 64<<10)
			if err != nil {
				return fmt.Errorf("--ca: %w", err)
			}
			out["ca"] = string(pem)
		}
	}
	if len(f.Header) == 0 {
		return nil
	}
	headers := []header{}
	for _, arg := range withoutEmpty(f.Header) {
		h, err := readHeader(arg, p.stdin)
		if err != nil {
			return fmt.Errorf("--header: %w", err)
		}
		headers = append(headers, h)
	}
	out["headers"] = headers
	return nil
}

// readHeader reads the value of Name=@FILE. One on the command line is
// refused, and not repeated: other users see it in the list of processes.
func readHeader(arg string, stdin io.Reader) (header, error) {
	name, source, found := strings.Cut(arg, "=")
	if !found || !strings.HasPrefix(source, "@") || source == "@" {
		return header{}, errors.New("give NAME=@FILE, or NAME=@- for standard input; a value on the command line would be seen in the process list and stay in the shell's history")
	}
	const most = 8<<10 + 2 // the longest value and a line end
	var value []byte
	var err error
	if source == "@-" {
		value, err = readAtMost(stdin, most)
	} else {
		value, err = readSmallFile(source[1:], most)
	}
	if err != nil {
		return header{}, fmt.Errorf("%s: %w", name, err)
	}
	value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	return header{name, string(value)}, nil
}

func readSmallFile(name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readAtMost(file, most)
}

func readAtMost(from io.Reader, most int64) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(out)) > most {
		err = fmt.Errorf("is longer than %d bytes", most)
	}
	return out, err
}

// parseSize reads bytes, KiB or MiB.
func parseSize(text string) (int64, error) {
	digits, unit := strings.TrimRight(text, "KMiB"), int64(1)
	switch text[len(digits):] {
	case "", "B":
	case "KiB":
		unit = 1 << 10
	case "MiB":
		unit = 1 << 20
	default:
		return 0, errors.New("must be a size like 65536, 64KiB or 4MiB")
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0, errors.New("must be a size like 65536, 64KiB or 4MiB")
	}
	return n * unit, nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func withoutEmpty(list []string) []string {
	out := []string{}
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}
