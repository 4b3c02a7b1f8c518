package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/control/api"
)

const (
	// A certificate that ends sooner is a problem: somebody has to act.
	certificateNotice = 7 * 24 * time.Hour
	// Two clocks that differ by more do not agree on what has expired.
	clockTolerance = 30 * time.Second
	dialTimeout    = 2 * time.Second
)

type doctorCmd struct{}

// finding is the outcome of one check.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// diagnosis is what doctor --json prints. Status is the API's object, absent
// when arbiter does not answer.
type diagnosis struct {
	OK     bool        `json:"ok"`
	Checks []finding   `json:"checks"`
	Status *api.Status `json:"status,omitzero"`
}

// errProblems is the exit code of a gateway that is not well.
var errProblems = errors.New("there are problems: see the lines that begin with \"problem\"")

// Run checks everything that can be checked and prints a line for each.
func (doctorCmd) Run(p *program) error {
	found := examine(p)
	if p.json {
		if err := p.printJSON(found); err != nil {
			return err
		}
	} else if err := p.printFindings(found.Checks); err != nil {
		return err
	}
	if !found.OK {
		return errProblems
	}
	return nil
}

func (p *program) printFindings(findings []finding) error {
	var rows [][]string
	for _, f := range findings {
		word := "ok"
		if !f.OK {
			word = "problem"
		}
		rows = append(rows, []string{word, f.Check, f.Detail})
	}
	return p.printTable(rows)
}

// check looks at one thing. An error is a problem and says what would help.
type check struct {
	name string
	look func(*patient) (string, error)
}

// patient is what the checks look at.
type patient struct {
	p      *program
	status *api.Status // nil: arbiter does not answer
}

// checks is the whole examination, in the order in which one thing needs
// another. Those that need an answer of arbiter are left out without one.
func checks() (always, answering []check) {
	always = []check{
		{"data directory", checkDirectory},
		{"key", checkKey},
		{"envoy binary", checkEnvoyBinary},
		{"admin socket", checkSocket},
	}
	answering = []check{
		{"version", checkVersion},
		{"clock", checkClock},
		{"database", checkDatabase},
		{"keys", checkKeys},
		{"envoy", checkEnvoy},
		{"port", checkPort},
		{"certificates", checkCertificates},
		{"policy", checkPolicy},
		{"tools", checkTools},
		{"replicas", checkReplicas},
		{"control", checkControl},
	}
	return always, answering
}

func examine(p *program) diagnosis {
	at := &patient{p: p}
	out := diagnosis{OK: true}
	always, answering := checks()
	look := func(c check) {
		detail, err := c.look(at)
		if err != nil {
			detail, out.OK = err.Error(), false
		}
		out.Checks = append(out.Checks, finding{c.name, err == nil, detail})
	}
	for _, c := range always {
		look(c)
	}
	if at.status != nil {
		for _, c := range answering {
			look(c)
		}
	}
	out.Status = at.status
	return out
}

// checkDirectory: who can read the directory can reach the admin socket.
func checkDirectory(at *patient) (string, error) {
	info, err := os.Stat(at.p.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s is not there: `arbiter up` makes it, or set ARBITER_DATA", at.p.data)
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a directory", at.p.data)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s has mode %04o, others can look into it: chmod 700", at.p.data, info.Mode().Perm())
	}
	return at.p.data, nil
}

// checkKey: without it stored secrets are lost, and who has it can open them.
func checkKey(at *patient) (string, error) {
	path := at.p.file(keyFile)
	info, err := os.Stat(path)
	_, databaseErr := os.Stat(at.p.file(databaseFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.Is(databaseErr, fs.ErrNotExist):
		return "", fmt.Errorf("%s is not there yet: `arbiter up` makes it", path)
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s IS MISSING: the secrets in the database cannot be opened without it; restore it from your backup", path)
	case err != nil:
		return "", err
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s has mode %04o, others can read it: chmod 600", path, info.Mode().Perm())
	}
	key, err := readSmallFile(path, 128)
	if err != nil {
		return "", err
	}
	if text := strings.TrimSpace(string(key)); len(text) != 64 || strings.Trim(text, "0123456789abcdefABCDEF") != "" {
		return "", fmt.Errorf("%s is not 32 bytes in hexadecimal", path)
	}
	return path, nil
}

// checkEnvoyBinary finds Envoy as `arbiter up` does.
func checkEnvoyBinary(at *patient) (string, error) {
	path, version, err := at.p.envoy()
	if err != nil {
		return "", err
	}
	return path + ", version " + version, nil
}

func checkSocket(at *patient) (string, error) {
	c, err := at.p.client()
	if err != nil {
		return "", err
	}
	status, _, err := ask[api.Status](c, http.MethodGet, "/status", nil)
	if err != nil {
		return "", err
	}
	at.status = &status
	return at.p.file(adminSocket) + " answers", nil
}

func checkVersion(at *patient) (string, error) {
	if running, mine := at.status.Version, version(); running != mine {
		return "", fmt.Errorf("running: %s, this program: %s; use the same", running, mine)
	}
	return at.status.Version, nil
}

func checkClock(at *patient) (string, error) {
	now := at.p.now()
	if off := at.status.Clock.Sub(now).Abs(); off > clockTolerance {
		return "", fmt.Errorf("arbiter's clock is %s away from this one", off.Round(time.Second))
	}
	for _, c := range at.status.Certificates {
		if now.Before(c.NotBefore) {
			return "", fmt.Errorf("it is %s here, before the certificate %q was made: is the clock wrong?", when(now, ""), c.Name)
		}
	}
	return when(now, ""), nil
}

func checkDatabase(at *patient) (string, error) {
	db := at.status.Database
	return fmt.Sprintf("%s, revision %d, revocation %d, epoch %d", db.Path, db.Revision, db.Seq, db.Epoch), nil
}

func checkKeys(at *patient) (string, error) {
	keys := at.status.Keys
	switch {
	case !keys.Sealing:
		return "", errors.New("the key that seals stored secrets is missing")
	case !keys.TokenMAC:
		return "", errors.New("the key of access tokens is missing")
	case keys.Sessions == 0:
		return "", errors.New("there is no session key")
	}
	return fmt.Sprintf("sealing, tokens, %d for sessions", keys.Sessions), nil
}

func checkEnvoy(at *patient) (string, error) {
	envoy := at.status.Envoy
	switch {
	case envoy.Error != "":
		return "", fmt.Errorf("it refused a configuration: %s", envoy.Error)
	case !envoy.Ready:
		return "", errors.New("it is not connected, or not ready")
	case envoy.AppliedRevision < at.status.Database.Revision:
		return "", fmt.Errorf("it runs revision %d of %d", envoy.AppliedRevision, at.status.Database.Revision)
	}
	if envoy.Connected > 1 {
		return strings.TrimSpace(fmt.Sprintf("%s %d ready", envoy.Version, envoy.Connected)), nil
	}
	return strings.TrimSpace(envoy.Version + " ready"), nil
}

// checkPort connects to the listeners from here.
func checkPort(at *patient) (string, error) {
	if len(at.status.Listeners) == 0 {
		return "", errors.New("no Envoy is connected, so nobody listens")
	}
	for _, listen := range at.status.Listeners {
		dialer := net.Dialer{Timeout: dialTimeout}
		conn, err := dialer.DialContext(at.p.ctx, "tcp", dialable(listen))
		if err != nil {
			return "", fmt.Errorf("nobody listens on %s", listen)
		}
		_ = conn.Close()
	}
	return strings.Join(at.status.Listeners, ", ") + " for " + at.status.BaseURL, nil
}

// dialable turns "listen on everything" into the loopback address.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip.IsUnspecified()) {
		if ip != nil && ip.To4() == nil {
			return net.JoinHostPort("::1", port)
		}
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
}

func checkCertificates(at *patient) (string, error) {
	if len(at.status.Certificates) == 0 {
		return "", errors.New("arbiter names no certificate")
	}
	var good []string
	for _, c := range at.status.Certificates {
		left := c.NotAfter.Sub(at.p.now())
		switch {
		case left <= 0:
			return "", fmt.Errorf("%q expired on %s", c.Name, when(c.NotAfter, ""))
		case left < certificateNotice:
			return "", fmt.Errorf("%q expires soon, on %s", c.Name, when(c.NotAfter, ""))
		}
		good = append(good, fmt.Sprintf("%s until %s", c.Name, when(c.NotAfter, "")))
	}
	return strings.Join(good, ", "), nil
}

// checkPolicy: what is refused changes nothing, so nobody else would notice.
func checkPolicy(at *patient) (string, error) {
	c, err := at.p.client()
	if err != nil {
		return "", err
	}
	deciding, _, err := ask[api.Policy](c, http.MethodGet, "/policy", nil)
	if err != nil {
		return "", err
	}
	if r := deciding.Refused; r != nil && len(r.Faults) > 0 {
		text := r.Faults[0].String()
		if more := len(r.Faults) - 1; more > 0 {
			text += fmt.Sprintf(" (and %d more: `arbiter policy show`)", more)
		}
		return "", fmt.Errorf("what %s offers is refused, and %s goes on deciding: %s", r.Origin, deciding.Revision, text)
	}
	return fmt.Sprintf("%s, %s, since %s", deciding.Revision, deciding.Origin, when(deciding.AcceptedAt, "")), nil
}

func checkReplicas(at *patient) (string, error) {
	newest := at.status.Database
	var good []string
	for _, r := range at.status.Replicas {
		switch {
		case !r.Connected:
			return "", fmt.Errorf("%s is not connected", r.Name)
		case r.LastError != "":
			return "", fmt.Errorf("%s: %s", r.Name, r.LastError)
		case r.AppliedRevision < newest.Revision:
			return "", fmt.Errorf("%s runs revision %d of %d", r.Name, r.AppliedRevision, newest.Revision)
		case r.ConfirmedSeq < newest.Seq:
			return "", fmt.Errorf("%s has confirmed revocation %d of %d", r.Name, r.ConfirmedSeq, newest.Seq)
		}
		good = append(good, r.Name)
	}
	if len(good) == 0 {
		return "", errors.New("no extauthz is connected, so every request is refused")
	}
	return strings.Join(good, ", ") + " connected", nil
}

func checkControl(at *patient) (string, error) {
	if len(at.status.Problems) > 0 {
		return "", errors.New(strings.Join(at.status.Problems, "; "))
	}
	return "reports no problem", nil
}
