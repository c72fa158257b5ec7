import java.util.List;
import java.util.Locale;
import java.util.TreeSet;
import news.Address;
import news.Mailing;
import news.MailingList;
import news.Preferences;

public final class HiddenTest {
    private static Address at(String text) {
        return new Address(text);
    }

    public static void main(String[] arguments) throws Exception {
        Check check = new Check();
        check.test("subscribed once", () -> {
            MailingList list = new MailingList();
            Check.same(true, list.subscribe(at("Ada@Example.org")));
            Check.same(false, list.subscribe(at("ada@example.org")));
            Check.same(List.of("en Ada@Example.org"), Mailing.envelopes(list, new Preferences()));
        });
        check.test("unsubscribed", () -> {
            MailingList list = new MailingList();
            list.subscribe(at("Ada@Example.org"));
            Check.same(true, list.unsubscribe(at("ADA@example.org")));
            Check.same(List.of(), list.recipients());
        });
        check.test("blocked", () -> {
            MailingList list = new MailingList();
            list.block(at("Ada@Example.org"));
            Check.same(false, list.subscribe(at("ada@example.org")));
        });
        check.test("preferences", () -> {
            Preferences preferences = new Preferences();
            preferences.setLanguage(at("Ada@Example.org"), "fr");
            Check.same("fr", preferences.language(at("ada@EXAMPLE.org")));
            Check.same("en", preferences.language(at("bob@example.org")));
        });
        check.test("blanks", () -> {
            Check.same(at("ada@example.org"), at("  ada@example.org\t"));
            Check.same(at("ada@example.org").hashCode(), at(" Ada@example.org ").hashCode());
            Check.same("ada@example.org", at(" ada@example.org").toString());
        });
        check.test("order agrees with equals", () -> {
            Check.same(0, at("A@x").compareTo(at("a@X")));
            TreeSet<Address> sorted = new TreeSet<>(List.of(at("b@x"), at("A@x"), at("C@x")));
            Check.same("[A@x, b@x, C@x]", sorted.toString());
            Check.same(true, sorted.contains(at("B@X")));
        });
        check.test("any locale", () -> {
            Locale.setDefault(new Locale("tr", "TR"));
            Check.same(at("INFO@x").hashCode(), at("info@x").hashCode());
            Check.same(at("INFO@x"), at("info@x"));
        });
        check.test("others are others", () -> {
            Check.same(false, at("ada@x").equals(at("adb@x")));
            Check.same(false, at("ada@x").equals("ada@x"));
            MailingList list = new MailingList();
            Check.same(true, list.subscribe(at("ada@x")) && list.subscribe(at("bob@x")));
        });
        check.finish();
    }
}
