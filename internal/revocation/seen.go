package revocation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ReadSeen reads the position that WriteSeen has kept; the zero Position when
// there is no file.
func ReadSeen(path string) (Position, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Position{}, nil
	}
	if err != nil {
		return Position{}, fmt.Errorf("reading how far this machine has followed the revocation log: %w", err)
	}
	var at Position
	if err := json.Unmarshal(text, &at); err != nil {
		return Position{}, fmt.Errorf("reading how far this machine has followed the revocation log: %s: %w", path, err)
	}
	return at, nil
}

// WriteSeen keeps a position, whole or not at all.
func WriteSeen(path string, at Position) error {
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("keeping the revocation log's position: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keeping the revocation log's position: %w", err)
	}
	return nil
}
