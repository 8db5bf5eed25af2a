"""x"""
import ast, sys, tomllib
from pathlib import Path
from whichrank.lint.check import check
from whichrank.lint.rules import BY_CODE
C=Path(__file__).parents[1]/"tests/lint/corpus"
T=tomllib.loads((C/"truth.toml").read_text())
held="--held" in sys.argv
v="-v" in sys.argv
tp=fp=fn=0
for e in T["file"]:
    if e["held_back"]!=held: continue
    text=(C/e["path"]).read_text()
    fs=check(ast.parse(text),text)
    tol=set(e.get("tolerated_lines",[]))
    used=set(); 
    for f in e.get("finding",[]):
        lines={f["line"],*f.get("also_lines",[])}; kinds={f["kind"],*f.get("also_kinds",[])}
        hit=[x for x in fs if x.line in lines and BY_CODE[x.code].name in kinds]
        used|=set(hit)
        if hit: tp+=1
        else:
            fn+=1
            if not held: print("MISS",e["path"],f["line"],f["kind"])
    for x in fs:
        if x in used or x.line in tol: continue
        fp+=1
        if not held: print("FALSE",e["path"],x.line,x.code,x.message)
print(tp,fp,fn)
