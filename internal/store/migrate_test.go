package store_test

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

// asReleasedFirst takes a database back to migration 0001, with the lease that
// a control of then had noted.
var asReleasedFirst = []string{
	`DROP TABLE policies`,
	`DROP TABLE tools`,
	`ALTER TABLE servers DROP COLUMN grants`,
	`ALTER TABLE servers DROP COLUMN policy_data`,
	`ALTER TABLE servers DROP COLUMN record_arguments`,
	`ALTER TABLE servers DROP COLUMN tool_changes`,
	`DROP INDEX decisions_by_arguments`,
	`ALTER TABLE decisions DROP COLUMN arguments`,
	`ALTER TABLE decisions DROP COLUMN arguments_until`,
	`ALTER TABLE decision_ring DROP COLUMN size`,
	`ALTER TABLE decisions DROP COLUMN size`,
	`ALTER TABLE decisions DROP COLUMN server_id`,
	`ALTER TABLE decisions RENAME COLUMN decision_id TO request_id`,
	`DROP TABLE replicas`,
	`ALTER TABLE revocations DROP COLUMN life`,
	`ALTER TABLE meta DROP COLUMN journaled`,
	`ALTER TABLE servers DROP COLUMN stopped_revision`,
	`ALTER TABLE meta ADD COLUMN lease BIGINT NOT NULL DEFAULT 0`,
	`DELETE FROM goose_db_version WHERE version_id > 1`,
}

// A control that is upgraded waits for the replicas that its predecessor gave
// leases to, although nobody wrote down their names.
func TestUpgradeKeepsLeases(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lease time.Duration
		want  []store.Replica
	}{
		{"used", 15 * time.Second, []store.Replica{{Name: "replicas of an earlier release", Lease: 15 * time.Second}}},
		{"never used", 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "arbiter.db")
			s := opened(t, path)
			srv := created(t, s, "a")
			for _, query := range asReleasedFirst {
				if err := s.Exec(query); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Exec(`UPDATE meta SET lease = $1`, tt.lease.Microseconds()); err != nil {
				t.Fatal(err)
			}
			closed(t, s)
			s = opened(t, path)
			defer closed(t, s)
			got, err := s.Replicas(t.Context())
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("replicas %+v, %v, want %+v", got, err, tt.want)
			}
			if _, err := s.Server(t.Context(), srv.ID); err != nil {
				t.Error(err)
			}
			if err := s.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
