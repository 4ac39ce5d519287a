import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.UUID;

/** PostgreSQL's driver for Java: a line per case, `ok`, `refused` with the reason, or `FAIL`. */
public final class Jdbc {
    private interface Case {
        void run(Connection connection) throws Exception;
    }

    private final String url;
    private boolean hasFailed;

    private Jdbc(String port) {
        url = "jdbc:postgresql://127.0.0.1:" + port + "/postgres?user=postgres&password=x";
    }

    public static void main(String[] arguments) {
        Jdbc all = new Jdbc(arguments[0]);
        all.one("statements and types", "", Jdbc::types);
        all.one("prepared by the server", "&prepareThreshold=1", Jdbc::prepared);
        all.one("simple queries only", "&preferQueryMode=simple", Jdbc::types);
        all.one("a transaction", "", Jdbc::transaction);
        all.one("savepoints", "", Jdbc::savepoints);
        all.one("autosave=always", "&autosave=always", Jdbc::autosave);
        all.one("batches", "&reWriteBatchedInserts=true", Jdbc::batches);
        all.one("rows in parts", "", Jdbc::parts);
        all.one("generated keys", "", Jdbc::keys);
        all.one("errors have codes", "", Jdbc::errors);
        all.one("tables and columns", "", Jdbc::metadata);
        all.one("the primary key", "", Jdbc::primaryKey);
        all.one("an array", "", Jdbc::array);
        System.exit(all.hasFailed ? 1 : 0);
    }

    private void one(String name, String options, Case run) {
        String outcome = "ok      ";
        String why = "";
        try (Connection connection = DriverManager.getConnection(url + options, new Properties())) {
            try (Statement statement = connection.createStatement()) {
                statement.execute("DROP TABLE IF EXISTS jdbc");
                statement.execute(
                    "CREATE TABLE jdbc (id bigserial PRIMARY KEY, name text UNIQUE, amount int, at timestamptz, "
                        + "code uuid, rate double precision, is_open boolean)");
            }
            run.run(connection);
        } catch (SQLException error) {
            boolean isRefused = "0A000".equals(error.getSQLState()) && error.getMessage().contains("Hint");
            outcome = isRefused ? "refused " : "FAIL    ";
            why = " | " + error.getSQLState() + " " + error.getMessage().replace('\n', ' ');
        } catch (Exception | AssertionError error) {
            outcome = "FAIL    ";
            why = " | " + error;
        }
        hasFailed |= outcome.startsWith("FAIL");
        System.out.println(outcome + "JDBC: " + name + why);
    }

    private static void same(Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError(found + " instead of " + expected);
        }
    }

    private static Object value(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            rows.next();
            return rows.getObject(1);
        }
    }

    private static void types(Connection connection) throws Exception {
        Timestamp now = Timestamp.from(Instant.parse("2024-02-29T10:11:12.345678Z"));
        UUID code = UUID.fromString("01234567-89ab-cdef-0123-456789abcdef");
        String insert =
            "INSERT INTO jdbc (name, amount, at, code, rate, is_open) VALUES (?, ?, ?, ?, ?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            statement.setString(1, "Ann");
            statement.setInt(2, 7);
            statement.setTimestamp(3, now);
            statement.setObject(4, code);
            statement.setDouble(5, 0.1);
            statement.setBoolean(6, true);
            same(statement.executeUpdate(), 1);
        }
        try (Statement statement = connection.createStatement();
            ResultSet rows = statement.executeQuery("SELECT * FROM jdbc")) {
            rows.next();
            same(rows.getLong("id"), 1L);
            same(rows.getString("name"), "Ann");
            same(rows.getInt("amount"), 7);
            same(rows.getTimestamp("at"), now);
            same(rows.getObject("code"), code);
            same(rows.getDouble("rate"), 0.1);
            same(rows.getBoolean("is_open"), true);
            same(rows.next(), false);
        }
    }

    private static void prepared(Connection connection) throws Exception {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO jdbc (amount) VALUES (?)")) {
            for (int number = 1; number <= 20; number++) {
                insert.setInt(1, number);
                same(insert.executeUpdate(), 1);
            }
        }
        try (PreparedStatement query = connection.prepareStatement("SELECT sum(amount) FROM jdbc WHERE id > ?")) {
            for (int number = 0; number < 10; number++) {
                query.setLong(1, number);
                ResultSet rows = query.executeQuery();
                rows.next();
                same(rows.getLong(1), (long) (210 - number * (number + 1) / 2));
            }
        }
    }

    private static void transaction(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO jdbc (amount) VALUES (1)");
            connection.rollback();
            statement.executeUpdate("INSERT INTO jdbc (amount) VALUES (2)");
            connection.commit();
        }
        same(value(connection, "SELECT sum(amount) FROM jdbc"), 2L);
        connection.commit();
    }

    private static void savepoints(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO jdbc (name) VALUES ('Ann')");
            Savepoint before = connection.setSavepoint("before");
            try {
                statement.executeUpdate("INSERT INTO jdbc (name) VALUES ('Ann')");
                throw new AssertionError("a name is there twice");
            } catch (SQLException expected) {
                same(expected.getSQLState(), "23505");
            }
            connection.rollback(before);
            statement.executeUpdate("INSERT INTO jdbc (name) VALUES ('Bob')");
            connection.commit();
        }
        same(value(connection, "SELECT count(*) FROM jdbc"), 2L);
        connection.commit();
    }

    private static void autosave(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO jdbc (name) VALUES ('Ann')");
            for (int times = 0; times < 2; times++) {
                try {
                    statement.executeUpdate("INSERT INTO jdbc (name) VALUES ('Ann')");
                    throw new AssertionError("a name is there twice");
                } catch (SQLException expected) {
                    same(expected.getSQLState(), "23505");
                }
            }
            statement.executeUpdate("INSERT INTO jdbc (name) VALUES ('Bob')");
            connection.commit();
        }
        same(value(connection, "SELECT count(*) FROM jdbc"), 2L);
        connection.commit();
    }

    private static void batches(Connection connection) throws Exception {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO jdbc (name, amount) VALUES (?, ?)")) {
            for (int number = 1; number <= 500; number++) {
                insert.setString(1, "name " + number);
                insert.setInt(2, number);
                insert.addBatch();
            }
            same(insert.executeBatch().length, 500);
            insert.setString(1, "name 1");
            insert.setInt(2, 0);
            insert.addBatch();
            insert.executeBatch();
            throw new AssertionError("a name is there twice");
        } catch (BatchUpdateException expected) {
            same(expected.getSQLState(), "23505");
        }
        same(value(connection, "SELECT sum(amount) FROM jdbc"), 125250L);
    }

    private static void parts(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO jdbc (amount) SELECT i FROM generate_series(1, 1000) AS s(i)");
            statement.setFetchSize(64);
            ResultSet rows = statement.executeQuery("SELECT amount FROM jdbc ORDER BY id");
            long sum = 0;
            while (rows.next()) {
                sum += rows.getInt(1);
            }
            same(sum, 500500L);
        }
        connection.commit();
    }

    private static void keys(Connection connection) throws Exception {
        try (PreparedStatement insert = connection.prepareStatement(
            "INSERT INTO jdbc (name) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
            insert.setString(1, "Ann");
            insert.executeUpdate();
            ResultSet keys = insert.getGeneratedKeys();
            keys.next();
            same(keys.getLong("id"), 1L);
        }
    }

    private static void errors(Connection connection) throws Exception {
        String[][] cases = {
            {"SELECT * FROM nothing", "42P01"}, {"SELECT 1 / 0", "22012"}, {"SELEC", "42601"},
            {"INSERT INTO jdbc (amount) VALUES ('x')", "22P02"},
        };
        for (String[] one : cases) {
            try (Statement statement = connection.createStatement()) {
                statement.execute(one[0]);
                throw new AssertionError(one[0] + " succeeds");
            } catch (SQLException expected) {
                same(expected.getSQLState(), one[1]);
            }
        }
    }

    private static void metadata(Connection connection) throws Exception {
        DatabaseMetaData about = connection.getMetaData();
        List<String> found = new ArrayList<>();
        try (ResultSet tables = about.getTables(null, "public", "jdbc", new String[] {"TABLE"})) {
            while (tables.next()) {
                found.add(tables.getString("TABLE_NAME"));
            }
        }
        try (ResultSet columns = about.getColumns(null, "public", "jdbc", "%")) {
            while (columns.next()) {
                found.add(columns.getString("COLUMN_NAME") + " " + columns.getString("TYPE_NAME"));
            }
        }
        // The driver calls an int8 with a default from a sequence a bigserial; this service shows no such default.
        same(found.toString().replace("bigserial", "int8"),
            "[jdbc, id int8, name text, amount int4, at timestamptz, code uuid, rate float8, is_open bool]");
    }

    private static void primaryKey(Connection connection) throws Exception {
        try (ResultSet keys = connection.getMetaData().getPrimaryKeys(null, "public", "jdbc")) {
            keys.next();
            same(keys.getString("COLUMN_NAME"), "id");
        }
    }

    private static void array(Connection connection) throws Exception {
        try (PreparedStatement query =
            connection.prepareStatement("SELECT count(*) FROM generate_series(1, 9) AS s(i) WHERE i = ANY (?)")) {
            query.setArray(1, connection.createArrayOf("int4", new Object[] {1, 3, 99}));
            ResultSet rows = query.executeQuery();
            rows.next();
            same(rows.getLong(1), 2L);
        }
    }
}
