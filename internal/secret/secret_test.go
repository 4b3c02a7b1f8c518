package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/arbiter-gateway/arbiter/internal/secret"
)

func TestRevealIsTheOneWayToTheValue(t *testing.T) {
	if got := secret.New("value").Reveal(); got != "value" {
		t.Errorf("Reveal = %q", got)
	}
	for _, empty := range []secret.Text{{}, secret.New("")} {
		if !empty.Empty() || empty.Reveal() != "" || empty != (secret.Text{}) {
			t.Errorf("%q is not the empty secret", empty.Reveal())
		}
	}
	if secret.New("value").Empty() {
		t.Error("a secret is empty")
	}
}

func TestTextsAreEqualWhenTheirSecretsAre(t *testing.T) {
	if secret.New("value") != secret.New(strings.Join([]string{"val", "ue"}, "")) {
		t.Error("the same secret twice differs")
	}
	if secret.New("value") == secret.New("other") {
		t.Error("different secrets are equal")
	}
}

// An unexported field is where fmt does not ask the methods of a Text.
type holder struct {
	Shown  secret.Text
	hidden secret.Text
	deep   []struct{ text secret.Text }
	byName map[string]secret.Text
}

func TestNothingPrintsASecret(t *testing.T) {
	const canary = "CANARY"
	text := secret.New(canary)
	h := holder{text, text, []struct{ text secret.Text }{{text}}, map[string]secret.Text{"k": text}}
	for _, value := range []any{text, &text, h, &h, []secret.Text{text}, []any{h}, map[string]any{"k": h}, fmt.Errorf("x: %v", h)} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
			fmt.Fprintf(&out, verb, value)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "value", value)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "value", value)
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(encoded)
		for _, spelling := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), "67 65 78"} {
			if strings.Contains(out.String(), spelling) {
				t.Errorf("%T: %s", value, &out)
			}
		}
	}
}

func TestAMarshalledSecretSaysThatItIsOne(t *testing.T) {
	encoded, err := json.Marshal(map[string]secret.Text{"k": secret.New("CANARY")})
	if want := `{"k":"redacted"}`; err != nil || string(encoded) != want {
		t.Errorf("%s, %v; want %s", encoded, err, want)
	}
	if got := secret.New("CANARY").String(); got != "redacted" {
		t.Errorf("String = %q", got)
	}
}
