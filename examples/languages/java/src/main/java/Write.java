import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

/** An order and its event, in one transaction. */
public class Write {
    public static void main(String[] args) throws SQLException {
        try (Connection connection = connect(URI.create(System.getenv("DATABASE_URL")))) {
            connection.setAutoCommit(false);
            place(connection, 1, 12);
            connection.commit();
            place(connection, 2, 99);
            connection.rollback(); // the card was refused
        }
    }

    static void place(Connection connection, int order, int total) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO orders (id, total) VALUES (?, ?)")) {
            insert.setInt(1, order);
            insert.setInt(2, total);
            insert.executeUpdate();
        }
        String event = "INSERT INTO postrider_event (event_type, aggregate_type, aggregate_id, payload) VALUES (?, ?, ?, ?)";
        try (PreparedStatement insert = connection.prepareStatement(event)) {
            insert.setString(1, "OrderPlaced");
            insert.setString(2, "Order");
            insert.setString(3, String.valueOf(order));
            insert.setString(4, String.format("{\"order\": %d, \"total\": %d}", order, total));
            insert.executeUpdate();
        }
    }

    /** JDBC wants the user apart from the address. */
    static Connection connect(URI url) throws SQLException {
        String[] user = url.getUserInfo().split(":", 2);
        String address = "jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath();
        return DriverManager.getConnection(address, user[0], user[1]);
    }
}
