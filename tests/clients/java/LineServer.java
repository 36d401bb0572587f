import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Answers lines of standard input until it ends, so that one process serves many questions. A line is
 * "ID WORD...", its answer is the line "ID ok TEXT" or "ID failed TEXT", with "\n" for a line's end in the text.
 */
final class LineServer {
    /** What a question's words are answered with. */
    interface Handler {
        String answer(List<String> words) throws Exception;
    }

    private final PrintStream answers = System.out;
    private final Handler handler;
    private final ExecutorService threads;

    LineServer(Handler handler, int atOnce) {
        this.handler = handler;
        threads = Executors.newFixedThreadPool(atOnce);
        System.setOut(System.err); // libraries print, too
    }

    /** Returns never: the threads of clients would keep the process. */
    void serve() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> words = List.of(line.split(" "));
            threads.execute(() -> answer(words.get(0), words.subList(1, words.size())));
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(String id, List<String> words) {
        String verdict = "ok";
        String text;
        try {
            text = handler.answer(words);
        } catch (Throwable error) {
            error.printStackTrace();
            verdict = "failed";
            text = error instanceof Failed ? error.getMessage() : error.toString();
        }
        String line = text.replace("\\", "\\\\").replace("\r", "").replace("\n", "\\n");
        synchronized (answers) {
            answers.println(id + " " + verdict + " " + line);
            answers.flush();
        }
    }
}
