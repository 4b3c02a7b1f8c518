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
	if err := writeWhole(path, append(text, '\n')); err != nil {
		return fmt.Errorf("keeping the revocation log's position: %w", err)
	}
	return nil
}

// writeWhole replaces a file, after the disk has the new one.
func writeWhole(path string, text []byte) error {
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
