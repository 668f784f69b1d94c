#pragma once

/// The page's style sheet.
namespace samestate::assets {

inline constexpr const char* style = R"css(
:root{--bg:#fff;--fg:#1a1a1a;--dim:#565656;--line:#d8d8d8;--box:#f6f7f9;--link:#005a8f;--good:#00694c;--bad:#b3361b;--warn:#7a5600}
@media(prefers-color-scheme:dark){:root:not([data-theme=light]){--bg:#14171c;--fg:#e6e6e6;--dim:#a9adb3;--line:#363b43;--box:#1c2027;--link:#7cc4f5;--good:#4fd0a5;--bad:#ff9470;--warn:#f0b429;color-scheme:dark}}
:root[data-theme=dark]{--bg:#14171c;--fg:#e6e6e6;--dim:#a9adb3;--line:#363b43;--box:#1c2027;--link:#7cc4f5;--good:#4fd0a5;--bad:#ff9470;--warn:#f0b429;color-scheme:dark}
*{box-sizing:border-box}
html{scroll-behavior:smooth}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif;-webkit-text-size-adjust:100%}
header,main{max-width:1240px;margin:0 auto;padding:0 20px}
header{padding-top:18px;position:relative}
h1{font-size:1.5rem;line-height:1.3;margin:0;padding-right:118px}h2{font-size:1.3rem;margin:2.2em 0 .4em}h3{font-size:1.05rem;margin:1.6em 0 .3em}
p{max-width:80ch;margin:.4em 0 .8em}.dim,figcaption,.runs{color:var(--dim);font-size:.875rem}
.runs{list-style:none;padding:0;margin:.4em 0;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:4px 18px;border-bottom:1px solid var(--line);padding:.5em 0}
a{color:var(--link)}
#theme{position:absolute;right:20px;top:20px}
button,input{font:inherit;font-size:.875rem;color:inherit;background:var(--box);border:1px solid var(--line);border-radius:5px;padding:3px 10px}
button{cursor:pointer}
button:focus-visible,.mark:focus-visible,summary:focus-visible{outline:2px solid var(--link);outline-offset:1px}
.big{font-size:1.15rem;font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:14px 26px}
figure{margin:0;padding:8px 0 0;break-inside:avoid;min-width:0;max-width:600px}
figure svg{width:100%;height:auto;display:block;font-family:system-ui,sans-serif}
figcaption{padding:2px 8px 10px;line-height:1.4}
.mark{cursor:pointer}.mark:hover path{stroke-width:1.2;stroke:currentColor}
details{border:1px solid var(--line);border-radius:7px;margin:.7em 0;padding:0 12px}
details details{background:var(--box)}
summary{cursor:pointer;padding:8px 0;font-weight:600}summary .dim{font-weight:400}
.scroll{overflow:auto;max-height:75vh;border:1px solid var(--line);border-radius:5px;background:linear-gradient(90deg,var(--bg) 30%,transparent) left/32px 100% no-repeat local,linear-gradient(270deg,var(--bg) 30%,transparent) right/32px 100% no-repeat local,linear-gradient(90deg,#8886,transparent) left/12px 100% no-repeat scroll,linear-gradient(270deg,#8886,transparent) right/12px 100% no-repeat scroll}
table{border-collapse:collapse;font-size:.84rem;width:100%}
th,td{padding:3px 9px;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
thead th{position:sticky;top:0;background:var(--box);z-index:1;vertical-align:bottom;padding:0}
thead button{border:0;background:none;padding:5px 9px;font-weight:600;font-size:inherit;width:100%;text-align:inherit}
thead [aria-sort=ascending] button::after{content:" \2191"}thead [aria-sort=descending] button::after{content:" \2193"}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.c{white-space:nowrap}code{font:.84em ui-monospace,monospace}
.v{padding:0 6px;font-size:inherit;line-height:1.35;border-color:transparent;background:none;color:var(--link);text-decoration:underline dotted}
td.c .v,figcaption .v{border-color:var(--line);text-decoration:none;background:var(--bg)}
.wide{display:inline-block;min-width:min(66ch,80vw)}
.filter{display:block;margin:.4em 0;font-size:.875rem}
.cover th:first-child,.cover td:first-child{position:sticky;left:0;background:var(--bg)}
.tag{display:inline-block;padding:0 7px;border-radius:9px;border:1px solid currentColor;font-size:.8em}
meter{width:min(40vw,260px)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 16px}dt{font-weight:600}dd{margin:0}
#toast{position:fixed;left:50%;bottom:18px;transform:translateX(-50%);max-width:92vw;background:var(--fg);color:var(--bg);border-radius:7px;padding:8px 14px;font:.85rem ui-monospace,monospace;overflow-wrap:anywhere;opacity:0;pointer-events:none;transition:opacity .15s}
#toast.on{opacity:1}
@media(max-width:600px){header,main{padding-left:12px;padding-right:12px}#theme{right:12px}dl{display:block}dt{margin-top:.5em}details{padding:0 8px}figcaption{padding:2px 2px 10px}}
@media(min-width:900px){.wide{min-width:120ch}}
@media print{:root,:root[data-theme=dark],:root:not([data-theme=light]){--bg:#fff;--fg:#000;--dim:#444;--line:#bbb;--box:#fff;color-scheme:light}
body{font-size:10pt}#theme,nav,.filter,#toast{display:none}.scroll{overflow:visible;max-height:none;border:0}.grid{grid-template-columns:1fr 1fr}
details{border:0;padding:0}thead{display:table-header-group}thead th{position:static}tr{break-inside:avoid}.c{white-space:normal;overflow-wrap:anywhere}table{font-size:7pt}
.wide{min-width:0}th,td{padding:1px 3px;overflow-wrap:anywhere}.n{white-space:normal}thead button{padding:1px 3px;overflow-wrap:anywhere}
.cover thead button{writing-mode:vertical-rl;white-space:nowrap;width:auto}.cover th:first-child,.cover td:first-child{position:static}}
@page{size:A4 landscape;margin:10mm}
)css";

}  // namespace samestate::assets
