package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
)

func (j *Journal) open() error {
	if err := os.Remove(j.path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // left over by a kill
	}
	file, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	j.file = file
	if err := j.load(); err != nil {
		return errors.Join(err, file.Close())
	}
	return nil
}

// load reads the whole file and makes its end one that can be written to.
func (j *Journal) load() error {
	info, err := j.file.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := j.file.Chmod(0o600); err != nil {
			return err
		}
	}
	j.size, err = scan(j.file, info.Size(), func(l line) error { return j.take(l, j.database) })
	if err != nil {
		return fmt.Errorf("%s, %w", j.path, err)
	}
	j.torn = info.Size() > j.size
	if err := j.cut(); err != nil {
		return err
	}
	return syncDirectory(j.path) // the file may have just been made
}

// cut takes off what follows the last whole line.
func (j *Journal) cut() error {
	if !j.torn {
		return nil
	}
	if err := errors.Join(j.file.Truncate(j.size), j.file.Sync()); err != nil {
		return err
	}
	j.torn = false
	return nil
}

// scan reads the lines in the first size bytes and returns how many bytes the
// whole ones take: what follows the last end of a line is not read.
func scan(file io.ReaderAt, size int64, each func(line) error) (whole int64, err error) {
	in := bufio.NewReader(io.NewSectionReader(file, 0, size))
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		var l line
		if err == nil {
			err = json.Unmarshal(text, &l, json.RejectUnknownMembers(true))
		}
		if err == nil {
			err = each(l)
		}
		if err != nil {
			return whole, fmt.Errorf("line %d: %w", n, err)
		}
		whole += int64(len(text))
	}
}

// append writes lines, and returns when the disk has them. After an error the
// file is as it was before: what was written of them is cut off by the next
// append, which writes them anew. It does not trust a disk that failed once to
// have kept what it was given then.
func (j *Journal) append(lines []line) error {
	if err := j.cut(); err != nil {
		return err
	}
	var text bytes.Buffer
	next := j.count
	for _, l := range lines {
		if err := errors.Join(next.take(l, j.database), writeLine(&text, l)); err != nil {
			return err
		}
	}
	j.torn = true
	if _, err := j.file.WriteAt(text.Bytes(), j.size); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.torn = false
	j.size += int64(text.Len())
	j.count = next
	return nil
}

func writeLine(to io.Writer, l line) error {
	if err := json.MarshalWrite(to, l); err != nil {
		return err
	}
	_, err := io.WriteString(to, "\n")
	return err
}

// compact writes the file anew with the newest entries, and replaces it as a
// whole: a kill leaves the one or the other.
func (j *Journal) compact() error {
	file, err := os.OpenFile(j.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	var has count
	size, err := j.copyTo(file, &has)
	if err == nil {
		err = os.Rename(j.path+".new", j.path)
	}
	if err != nil {
		return fmt.Errorf("writing it anew: %w", errors.Join(err, file.Close(), os.Remove(j.path+".new")))
	}
	old := j.file
	j.file, j.size, j.torn, j.count = file, size, false, has
	return errors.Join(old.Close(), syncDirectory(j.path))
}

// copyTo writes the newest entries, between where they begin and where they
// end, and returns how many bytes that took. Positions in between add nothing.
func (j *Journal) copyTo(file *os.File, has *count) (size int64, err error) {
	out := bufio.NewWriter(file)
	put := func(l line) error { return errors.Join(has.take(l, j.database), writeLine(out, l)) }
	skip, before := j.entries-j.keep, past{}
	_, err = scan(j.file, j.size, func(l line) error {
		if l.Kind != 0 {
			skip--
		}
		if l.Kind == 0 || skip >= 0 {
			return before.take(l)
		}
		if has.lines == 0 && before.seen.Database != "" {
			if err := put(positionLine(before.seen)); err != nil {
				return err
			}
		}
		return put(l)
	})
	if err == nil {
		err = put(positionLine(j.seen))
	}
	if err := errors.Join(err, out.Flush(), file.Sync()); err != nil {
		return 0, err
	}
	return file.Seek(0, io.SeekCurrent)
}

// syncDirectory makes a new name in a file's directory durable.
func syncDirectory(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
