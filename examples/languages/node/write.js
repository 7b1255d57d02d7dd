// An order and its event, in one transaction.
const { Client } = require("pg");

async function place(client, order, total) {
  await client.query("INSERT INTO orders (id, total) VALUES ($1, $2)", [order, total]);
  await client.query(
    "INSERT INTO postrider_event (event_type, aggregate_type, aggregate_id, payload) VALUES ($1, $2, $3, $4)",
    ["OrderPlaced", "Order", String(order), JSON.stringify({ order, total })],
  );
}

async function main() {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  try {
    await client.query("BEGIN");
    await place(client, 1, 12);
    await client.query("COMMIT");

    await client.query("BEGIN");
    await place(client, 2, 99);
    await client.query("ROLLBACK"); // the card was refused
  } finally {
    await client.end();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
