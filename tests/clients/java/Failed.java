/** A scenario did not end as it should; the text says how, in one line. */
final class Failed extends RuntimeException {
    private static final long serialVersionUID = 1;

    Failed(String text) {
        super(text);
    }

    static void unless(boolean condition, String text) {
        if (!condition) {
            throw new Failed(text);
        }
    }
}
