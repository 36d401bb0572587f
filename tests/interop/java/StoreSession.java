import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.entry.DLedgerEntryType;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/**
 * Drives Java DLedger's own file store by commands on standard input, one a line:
 *
 * <pre>
 * open BASE NODE DATA_FILE_BYTES INDEX_FILE_BYTES    runs Java's recovery; answers before, end, end term, write position
 * lead TERM                                          the store takes appends of that term from now on
 * append MAGIC BODY_IN_BASE64                        MAGIC 1 or 2; answers index and position
 * truncate INDEX                                     drops the entry at INDEX and all behind it; answers the new end
 * dump                                               a line for every entry that Java's own get() returns
 * close
 * serve BASE NODE DATA_FILE_BYTES INDEX_FILE_BYTES PORT COUNT
 *                                                    runs a whole server, a group of one, until it has committed COUNT entries
 *                                                    "served 0", "served 1", ...; answers its term
 * </pre>
 *
 * Each answer ends with a line "ok" and what the command answers, or "failed" and an exception. Recovery that gives up calls
 * System.exit; then there is no answer.
 */
public final class StoreSession {
    private final PrintStream out;
    private DLedgerMmapFileStore store;
    private MemberState member;

    private StoreSession(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err); // whatever libraries print must not be taken for an answer
        StoreSession session = new StoreSession(out);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println("ok " + session.execute(line.split(" ", -1)));
            } catch (Exception | LinkageError error) {
                out.println("failed " + error.toString().replace('\n', ' '));
            }
            out.flush();
        }
        System.exit(0); // threads of the store do not end by themselves
    }

    private String execute(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                return open(config(words, "1"));
            case "lead":
                member.setCurrTermForTest(Long.parseLong(words[1]));
                member.changeToLeader(Long.parseLong(words[1]));
                return "";
            case "append":
                return append(Integer.parseInt(words[1]), Base64.getDecoder().decode(words[2]));
            case "truncate":
                return Long.toString(store.truncate(Long.parseLong(words[1])));
            case "dump":
                return dump();
            case "close":
                store.flush(); // its threads were never started, so there is nothing to shut down
                return "";
            case "serve":
                return serve(config(words, words[5]), Integer.parseInt(words[6]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static DLedgerConfig config(String[] words, String port) {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup("g");
        config.setSelfId(words[2]);
        config.setPeers(words[2] + "-127.0.0.1:" + port);
        config.setStoreBaseDir(words[1]);
        config.setMappedFileSizeForEntryData(Integer.parseInt(words[3]));
        config.setMappedFileSizeForEntryIndex(Integer.parseInt(words[4]));
        config.init();
        return config;
    }

    private String serve(DLedgerConfig config, int count) throws Exception {
        NettyServerConfig listener = new NettyServerConfig();
        listener.setBindAddress("127.0.0.1");
        DLedgerServer server = new DLedgerServer(config, listener);
        server.startup();
        try {
            for (int round = 0; !server.getMemberState().isLeader(); round++) {
                if (round == 300) {
                    throw new IllegalStateException("no leader within 30 s");
                }
                Thread.sleep(100);
            }
            for (int number = 0; number < count; number++) {
                AppendEntryRequest request = new AppendEntryRequest();
                request.setGroup(config.getGroup());
                request.setRemoteId(config.getSelfId());
                request.setBody(("served " + number).getBytes(StandardCharsets.UTF_8));
                AppendEntryResponse answer = server.handleAppend(request).get(10, TimeUnit.SECONDS);
                if (answer.getCode() != 200) {
                    throw new IllegalStateException("append answered " + answer.getCode());
                }
            }
            return Long.toString(server.getMemberState().currTerm());
        } finally {
            server.shutdown();
        }
    }

    private String open(DLedgerConfig config) {
        member = new MemberState(config);
        store = new DLedgerMmapFileStore(config, member);
        store.load();
        store.recover();
        return store.getLedgerBeforeBeginIndex() + " " + store.getLedgerEndIndex() + " " + store.getLedgerEndTerm() + " "
            + store.getWritePos();
    }

    private String append(int magic, byte[] body) {
        DLedgerEntry entry = new DLedgerEntry(magic == 2 ? DLedgerEntryType.NOOP : DLedgerEntryType.NORMAL);
        entry.setBody(body);
        DLedgerEntry appended = store.appendAsLeader(entry);
        return appended.getIndex() + " " + appended.getPos();
    }

    private String dump() throws Exception {
        MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
        for (long index = store.getLedgerBeforeBeginIndex() + 1; index <= store.getLedgerEndIndex(); index++) {
            DLedgerEntry entry = store.get(index);
            byte[] body = entry.getBody() == null ? new byte[0] : entry.getBody();
            StringBuilder digest = new StringBuilder();
            for (byte part : sha256.digest(body)) {
                digest.append(String.format("%02x", part));
            }
            out.println(entry.getIndex() + " " + entry.getTerm() + " " + entry.getPos() + " " + entry.getMagic() + " "
                + entry.getSize() + " " + entry.getChannel() + " " + Integer.toUnsignedString(entry.getChainCrc()) + " "
                + Integer.toUnsignedString(entry.getBodyCrc()) + " " + body.length + " " + digest);
        }
        return "";
    }
}
