#include "reports/text/escape.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

TEST(Escape, XmlSafeKeepsWhatIsAllowed) {
  EXPECT_EQ(xml_safe("tab\tline\nreturn\r \u00fc \u20ac \U0001F600"),
            "tab\tline\nreturn\r \u00fc \u20ac \U0001F600");
  EXPECT_EQ(xml_safe("a\x01\x08\x0b\x1f\x7f"
                     "b"),
            "a\x7f"
            "b");
  EXPECT_EQ(xml_safe("\xc0\xaf"), "\uFFFD\uFFFD") << "overlong";
  EXPECT_EQ(xml_safe("\xe2\x82"), "\uFFFD\uFFFD") << "cut";
  EXPECT_EQ(xml_safe("\xef\xbf\xbf"), "") << "U+FFFF is no XML character";
  EXPECT_EQ(xml_safe("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD") << "above U+10FFFF";
}

TEST(Escape, OneLineHoldsNoControlCharacter) {
  EXPECT_EQ(on_one_line("a\nb\tc\x1b[1m\x7f"), "a b c [1m ");
  EXPECT_EQ(on_one_line("\xff"), "\uFFFD");
}

TEST(Escape, ACellIsOneRowWithoutMarkup) {
  EXPECT_EQ(markdown_cell("a|b\nc"), "a\\|b c");
  EXPECT_EQ(markdown_cell("<b>*x* `y` [z](w) ~ & \\"), "&lt;b>\\*x\\* \\`y\\` [z\\](w) \\~ &amp; \\\\");
  EXPECT_EQ(markdown_cell("gated_delta_rule S_{t} a__b"), "gated_delta_rule S_{t} a_\\_b")
      << "after a letter an underscore opens nothing";
  EXPECT_EQ(markdown_cell("S[t] [B, T]"), "S[t] [B, T]") << "no link";
  EXPECT_EQ(markdown_cell("_x_ \u00e9_\u00e9"), "\\_x_ \u00e9\\_\u00e9");
}

TEST(Escape, HtmlEndsNoElementAndNoAttribute) {
  EXPECT_EQ(html_escaped("</td>\"'&\x01\xff"), "&lt;/td&gt;&quot;&#39;&amp;\uFFFD");
}

}  // namespace
}  // namespace samestate
