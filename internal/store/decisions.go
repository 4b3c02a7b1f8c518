package store

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/mask"
)

// The newest decision records are kept: so many, or fewer when they are long.
const (
	KeptDecisions     = 10_000
	KeptDecisionBytes = 64 << 20 // of records and arguments together
)

// Decision is one decision as it was recorded.
type Decision struct {
	ID     string // decision_id
	Server string // id; "" for none
	Time   time.Time
	JSON   []byte // the whole record, valid JSON

	// Arguments are values that the record does not have, masked: a JSON array.
	// nil: none were recorded, or they were dropped again.
	Arguments      []byte
	Mask           string    // mask.ID of the rules that blanked them; AddDecisions only
	ArgumentsUntil time.Time // when they are dropped; set by the store
}

// AddDecisions keeps records, given from the oldest to the newest, and drops
// the oldest ones of too many. Arguments are kept only where the server records
// them at this moment, by the same mask. After an error some of the records may
// be kept.
func (s *Store) AddDecisions(ctx context.Context, records []Decision) error {
	records = records[max(0, len(records)-KeptDecisions):]
	for part := range slices.Chunk(records, rowsPerWrite) {
		err := s.write(ctx, "keeping decision records", func(tx conn) error { return s.addDecisions(tx, part) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) addDecisions(tx conn, records []Decision) error {
	count, size := int64(len(records)), int64(0)
	keeps := keeper{tx: tx, now: s.now(), known: map[string]*RecordArguments{}}
	for i := range records {
		if err := keeps.judge(&records[i]); err != nil {
			return err
		}
		size += records[i].size()
	}
	var newest, total int64
	err := tx.row(`UPDATE decision_ring SET newest = newest + $1, size = size + $2 WHERE id = 1
		RETURNING newest, size`, count, size)(&newest, &total)
	if err != nil {
		return err
	}
	for i, r := range records {
		_, err := tx.exec(`INSERT INTO decisions
			(n, decision_id, server_id, decided_at, record, size, arguments, arguments_until)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			newest-count+int64(i)+1, r.ID, r.Server, micros(r.Time), string(r.JSON), r.size(),
			string(r.Arguments), micros(r.ArgumentsUntil))
		if err != nil {
			return err
		}
	}
	return shrinkRing(tx, newest, total-KeptDecisionBytes)
}

func (d *Decision) size() int64 { return int64(len(d.JSON) + len(d.Arguments)) }

// keeper decides in a transaction whose arguments are kept, and until when.
type keeper struct {
	tx    conn
	now   time.Time
	known map[string]*RecordArguments // by server
}

func (k *keeper) judge(d *Decision) error {
	d.ArgumentsUntil = time.Time{}
	if len(d.Arguments) == 0 {
		d.Arguments = nil
		return nil
	}
	recording, err := k.recording(d.Server)
	if err != nil {
		return err
	}
	if recording == nil || recording.Keep <= 0 || mask.ID(recording.Mask) != d.Mask {
		d.Arguments = nil
		return nil
	}
	d.ArgumentsUntil = k.now.Add(recording.Keep)
	return nil
}

func (k *keeper) recording(server string) (*RecordArguments, error) {
	if found, ok := k.known[server]; ok {
		return found, nil
	}
	var text string
	err := k.tx.row(`SELECT record_arguments FROM servers WHERE id = $1`, server)(&text)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	k.known[server], err = parseRecording(text)
	return k.known[server], err
}

// shrinkRing drops what is older than the newest KeptDecisions, and then from
// the oldest on until that many bytes have gone.
func shrinkRing(tx conn, newest, bytes int64) error {
	last, gone := newest-KeptDecisions, int64(0)
	err := tx.row(`SELECT COALESCE(SUM(size), 0) FROM decisions WHERE n <= $1`, last)(&gone)
	if err != nil {
		return err
	}
	if gone < bytes {
		last, gone, err = oldestOf(tx, bytes)
		if err != nil {
			return err
		}
	}
	if _, err := tx.exec(`DELETE FROM decisions WHERE n <= $1`, last); err != nil {
		return err
	}
	_, err = tx.exec(`UPDATE decision_ring SET size = size - $1 WHERE id = 1`, gone)
	return err
}

// oldestOf is up to which record from the oldest on there are at least so many
// bytes.
func oldestOf(tx conn, bytes int64) (last, size int64, err error) {
	enough := errors.New("enough")
	err = tx.rows(func(row scan) error {
		var one int64
		if err := row(&last, &one); err != nil {
			return err
		}
		if size += one; size >= bytes {
			return enough
		}
		return nil
	}, `SELECT n, size FROM decisions ORDER BY n`)
	if errors.Is(err, enough) {
		err = nil
	}
	return last, size, err
}

// decisionColumns and scanDecision have one order.
const decisionColumns = `n, decision_id, server_id, decided_at, record, arguments, arguments_until`

func (s *Store) scanDecision(row scan) (d Decision, n int64, err error) {
	var record, arguments string
	var at, until int64
	if err := row(&n, &d.ID, &d.Server, &at, &record, &arguments, &until); err != nil {
		return Decision{}, 0, err
	}
	d.Time, d.JSON = timeOf(at), []byte(record)
	if arguments != "" && timeOf(until).After(s.now()) { // and not what waits to be dropped
		d.Arguments, d.ArgumentsUntil = []byte(arguments), timeOf(until)
	}
	return d, n, nil
}

// Decision returns the newest kept record of a request.
func (s *Store) Decision(ctx context.Context, id string) (Decision, error) {
	d, _, err := s.scanDecision(s.read(ctx).row(
		`SELECT `+decisionColumns+` FROM decisions WHERE decision_id = $1 ORDER BY n DESC LIMIT 1`, id))
	if err != nil {
		return Decision{}, failed("reading decision", err)
	}
	return d, nil
}

// Decisions lists records from the newest to the oldest, and returns the
// cursor of the next page, "" at the end. ErrCursor: Page.After is none of this
// list.
func (s *Store) Decisions(ctx context.Context, p Page) ([]Decision, string, error) {
	before, err := parseDecisionCursor(p.After)
	if err != nil {
		return nil, "", err
	}
	out, last, err := s.decisionsBefore(ctx, before, p.limit()+1)
	if err != nil || len(out) <= p.limit() {
		return out, "", err
	}
	return out[:p.limit()], cursor("", strconv.FormatInt(last+1, 10)), nil
}

func parseDecisionCursor(text string) (before int64, err error) {
	if text == "" {
		return 1<<63 - 1, nil
	}
	_, n, err := parseCursor(text)
	if err != nil {
		return 0, err
	}
	before, err = strconv.ParseInt(n, 10, 64)
	if err != nil || before < 1 {
		return 0, ErrCursor
	}
	return before, nil
}

// EachDecision calls each for the newest records, from the newest to the
// oldest, at most limit of them. No transaction is open while each runs. An
// error of each ends it.
func (s *Store) EachDecision(ctx context.Context, limit int, each func(Decision) error) error {
	before := int64(1<<63 - 1)
	for limit > 0 {
		part, last, err := s.decisionsBefore(ctx, before, min(limit, largestPage))
		if err != nil {
			return err
		}
		for _, d := range part {
			if err := each(d); err != nil {
				return err
			}
		}
		if len(part) < min(limit, largestPage) {
			return nil
		}
		before, limit = last, limit-len(part)
	}
	return nil
}

// decisionsBefore reads records from the newest on, and the number of the last.
func (s *Store) decisionsBefore(ctx context.Context, before int64, limit int) (out []Decision, last int64, err error) {
	err = s.read(ctx).rows(func(row scan) error {
		d, n, err := s.scanDecision(row)
		out, last = append(out, d), n
		return err
	}, `SELECT `+decisionColumns+` FROM decisions WHERE n < $1 ORDER BY n DESC LIMIT $2`, before, limit)
	if err != nil {
		return nil, 0, failed("reading decisions", err)
	}
	return out, last, nil
}
