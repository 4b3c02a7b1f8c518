package store

import (
	"context"
	"slices"
	"time"
)

// KeptDecisions is how many decision records are kept.
const KeptDecisions = 10_000

// DecisionRecord is one decision as it was recorded.
type DecisionRecord struct {
	RequestID string
	Time      time.Time
	JSON      []byte // the whole record, valid JSON
}

// AddDecisions keeps records, given from the oldest to the newest, and drops
// all but the newest KeptDecisions. After an error some of them may be kept.
func (s *Store) AddDecisions(ctx context.Context, records []DecisionRecord) error {
	records = records[max(0, len(records)-KeptDecisions):]
	for part := range slices.Chunk(records, rowsPerWrite) {
		err := s.write(ctx, "keeping decision records", func(tx conn) error { return addDecisions(tx, part) })
		if err != nil {
			return err
		}
	}
	return nil
}

func addDecisions(tx conn, records []DecisionRecord) error {
	count := int64(len(records))
	var newest int64
	err := tx.row(`UPDATE decision_ring SET newest = newest + $1 WHERE id = 1 RETURNING newest`, count)(&newest)
	if err != nil {
		return err
	}
	for i, r := range records {
		_, err := tx.exec(`INSERT INTO decisions (n, request_id, decided_at, record) VALUES ($1, $2, $3, $4)`,
			newest-count+int64(i)+1, r.RequestID, micros(r.Time), string(r.JSON))
		if err != nil {
			return err
		}
	}
	_, err = tx.exec(`DELETE FROM decisions WHERE n <= $1`, newest-KeptDecisions)
	return err
}

// Decision returns the newest kept record of a request, as JSON.
func (s *Store) Decision(ctx context.Context, requestID string) ([]byte, error) {
	var record string
	err := s.read(ctx).row(`SELECT record FROM decisions WHERE request_id = $1 ORDER BY n DESC LIMIT 1`, requestID)(&record)
	if err != nil {
		return nil, failed("reading decision", err)
	}
	return []byte(record), nil
}
