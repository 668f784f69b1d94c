#pragma once

/// The page's script: copying, sorting, filtering, the theme. Without it everything can still be read.
namespace samestate::assets {

inline constexpr const char* script = R"js(
'use strict';
(function(){
  const root=document.documentElement,toast=document.getElementById('toast');
  const commands=JSON.parse(document.getElementById('commands').textContent);
  let timer=0;
  function say(text){toast.textContent=text;toast.classList.add('on');clearTimeout(timer);timer=setTimeout(()=>toast.classList.remove('on'),4000);}
  function byHand(text){const area=document.createElement('textarea');area.value=text;area.style.position='fixed';area.style.opacity='0';document.body.append(area);area.select();let ok=false;try{ok=document.execCommand('copy');}catch(e){ok=false;}area.remove();return ok;}
  function copy(text){
    const done=ok=>{root.dataset.copied=text;say((ok?'copied: ':'copy this: ')+text);};
    if(navigator.clipboard&&window.isSecureContext)navigator.clipboard.writeText(text).then(()=>done(true),()=>done(byHand(text)));
    else done(byHand(text));
  }
  for(const mark of document.querySelectorAll('.mark')){mark.setAttribute('tabindex','0');mark.setAttribute('role','button');const title=mark.querySelector('title');if(title)title.textContent+='; click to copy the case';}
  function act(target){
    const at=target.closest('[data-point],[data-copy]');
    if(!at)return false;
    const text=at.dataset.copy!==undefined?at.dataset.copy:commands[Number(at.dataset.point)];
    if(text===undefined)return false;
    copy(text);return true;
  }
  function value(row,column,number){
    const cell=row.cells[column];if(!cell)return number?NaN:'';
    if(!number)return cell.textContent;
    const v=cell.dataset.v;return v==='inf'?Infinity:v==='-inf'?-Infinity:Number(v);
  }
  function sort(head){
    const table=head.closest('table'),body=table.tBodies[0],column=head.cellIndex,number=head.classList.contains('n');
    const up=head.getAttribute('aria-sort')!=='ascending';
    for(const other of table.tHead.rows[0].cells)other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort',up?'ascending':'descending');
    const rows=Array.from(body.rows).map((row,i)=>[row,value(row,column,number),i]);
    // What is not a number stands last in both directions.
    rows.sort((a,b)=>{
      if(number){const x=Number.isNaN(a[1]),y=Number.isNaN(b[1]);if(x||y)return x-y||a[2]-b[2];return (a[1]===b[1]?0:a[1]<b[1]?-1:1)*(up?1:-1)||a[2]-b[2];}
      return a[1].localeCompare(b[1],'en')*(up?1:-1)||a[2]-b[2];
    });
    body.append(...rows.map(r=>r[0]));
  }
  document.addEventListener('click',event=>{
    if(act(event.target))return;
    const head=event.target.closest('thead th');if(head)sort(head);
  });
  document.addEventListener('keydown',event=>{if((event.key==='Enter'||event.key===' ')&&event.target.classList.contains('mark')&&act(event.target))event.preventDefault();});
  for(const field of document.querySelectorAll('.filter input'))field.addEventListener('input',()=>{
    const words=field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for(const row of field.closest('.table').querySelector('tbody').rows){const text=row.textContent.toLowerCase();row.hidden=!words.every(w=>text.includes(w));}
  });
  function stored(){try{return localStorage.getItem('samestate-theme');}catch(e){return null;}}
  if(stored()==='dark'||stored()==='light')root.dataset.theme=stored();
  document.getElementById('theme').addEventListener('click',()=>{
    const dark=root.dataset.theme?root.dataset.theme==='dark':matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme=dark?'light':'dark';
    try{localStorage.setItem('samestate-theme',root.dataset.theme);}catch(e){/* a page from disk may have no storage */}
  });
  let closed=[];
  window.addEventListener('beforeprint',()=>{closed=Array.from(document.querySelectorAll('details:not([open])'));for(const d of closed)d.open=true;});
  window.addEventListener('afterprint',()=>{for(const d of closed)d.open=false;});
  function reveal(){const at=location.hash.length>1&&document.getElementById(decodeURIComponent(location.hash.slice(1)));for(let d=at&&at.closest('details');d;d=d.parentElement.closest('details'))d.open=true;}
  window.addEventListener('hashchange',reveal);reveal();
  root.dataset.ready='yes';
})();
)js";

}  // namespace samestate::assets
