package store

import (
	"context"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/identity"
)

// DropArguments drops argument values whose time is over at a moment, or now if
// that is earlier, and says of how many decisions. The records stay.
func (s *Store) DropArguments(ctx context.Context, at time.Time) (int64, error) {
	until := micros(earlier(at, s.now()))
	var dropped int64
	for {
		var n int64
		err := s.write(ctx, "dropping argument values", func(tx conn) (err error) {
			n, err = tx.exec(`UPDATE decisions SET arguments = '', arguments_until = 0 WHERE n IN
				(SELECT n FROM decisions WHERE arguments_until > 0 AND arguments_until <= $1 LIMIT $2)`,
				until, rowsPerWrite)
			return err
		})
		if err != nil {
			return dropped, err
		}
		if dropped += n; n < rowsPerWrite {
			return dropped, nil
		}
	}
}

// stripArguments drops all argument values of a server in its own transaction:
// with the change that ends their being recorded.
func stripArguments(tx conn, id identity.ServerID) error {
	_, err := tx.exec(`UPDATE decisions SET arguments = '', arguments_until = 0
		WHERE arguments_until > 0 AND server_id = $1`, id.String())
	return err
}

// stripUnlessSame drops a server's argument values before its row is written
// with other rules for them: what was kept by the old ones is gone, whether the
// new ones keep less, mask more or end it.
func stripUnlessSame(tx conn, srv *Server) error {
	want, err := recordingText(srv.RecordArguments)
	if err != nil {
		return err
	}
	var have string
	err = tx.row(`SELECT record_arguments FROM servers WHERE id = $1`, srv.ID.String())(&have)
	if err != nil || have == want {
		return err
	}
	return stripArguments(tx, srv.ID)
}
