// An order and its event, in one transaction.
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strconv"

	_ "github.com/lib/pq"
)

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := inTransaction(db, func(tx *sql.Tx) error { return place(tx, 1, 12) }); err != nil {
		log.Fatal(err)
	}
	refused := errors.New("the card was refused")
	err = inTransaction(db, func(tx *sql.Tx) error {
		if err := place(tx, 2, 99); err != nil {
			return err
		}
		return refused
	})
	if !errors.Is(err, refused) {
		log.Fatal(err)
	}
}

func place(tx *sql.Tx, order, total int) error {
	if _, err := tx.Exec("INSERT INTO orders (id, total) VALUES ($1, $2)", order, total); err != nil {
		return err
	}
	payload, err := json.Marshal(map[string]int{"order": order, "total": total})
	if err != nil {
		return err
	}
	_, err = tx.Exec(
		"INSERT INTO postrider_event (event_type, aggregate_type, aggregate_id, payload) VALUES ($1, $2, $3, $4)",
		"OrderPlaced", "Order", strconv.Itoa(order), string(payload))
	return err
}

// Commits what it does, or nothing of it.
func inTransaction(db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		tx.Rollback() // what went wrong first is what counts
		return err
	}
	return tx.Commit()
}
