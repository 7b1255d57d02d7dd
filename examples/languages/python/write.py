"""An order and its event, in one transaction."""
import json
import os

import psycopg2


def place(connection, order_id, total):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders (id, total) VALUES (%s, %s)", (order_id, total))
        cursor.execute(
            "INSERT INTO postrider_event (event_type, aggregate_type, aggregate_id, payload) VALUES (%s, %s, %s, %s)",
            ("OrderPlaced", "Order", str(order_id), json.dumps({"order": order_id, "total": total})),
        )


connection = psycopg2.connect(os.environ["DATABASE_URL"])
try:
    with connection:  # commits at its end
        place(connection, 1, 12)
    try:
        with connection:  # rolls back, since it ends with an exception
            place(connection, 2, 99)
            raise ValueError("the card was refused")
    except ValueError:
        pass
finally:
    connection.close()
