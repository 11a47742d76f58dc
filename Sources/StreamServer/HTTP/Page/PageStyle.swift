extension Page {
  /// The style sheet. Below 70 rem each row of the table becomes a block with the columns' names in it.
  static let style = #"""

    :root {
      color-scheme: light dark;
      --text: #1b1f24; --muted: #57606a; --back: #ffffff; --raised: #f3f5f7; --line: #d0d7de;
      --accent: #0b5c8a; --bad: #a40e26; --good: #116329;
    }
    @media (prefers-color-scheme: dark) {
      :root {
        --text: #e6edf3; --muted: #a3acb6; --back: #0d1117; --raised: #171d26; --line: #3d444d;
        --accent: #79c0ff; --bad: #ffa198; --good: #7ee787;
      }
    }
    * { box-sizing: border-box; }
    [hidden] { display: none !important; }
    body { margin: 0; padding: 1rem; background: var(--back); color: var(--text); font: 1rem/1.4 system-ui, sans-serif; }
    h1 { margin: 0; font-size: 1.3rem; }
    h1 span { color: var(--muted); font-weight: normal; }
    h2 { margin: 1rem 0 .5rem; font-size: 1.1rem; overflow-wrap: anywhere; }
    h3 { margin: .75rem 0 .25rem; font-size: 1rem; }
    dl { display: flex; flex-wrap: wrap; gap: 0 1.5rem; margin: .25rem 0; }
    dl div { display: flex; gap: .4rem; }
    dt { color: var(--muted); }
    dd { margin: 0; font-variant-numeric: tabular-nums; }
    p { margin: .25rem 0; }
    #status { font-weight: 600; color: var(--good); }
    #status.lost { color: var(--bad); }
    button, input { font: inherit; color: inherit; background: var(--raised); border: 1px solid var(--line);
      border-radius: .25rem; padding: .25rem .5rem; min-height: 2rem; }
    button { cursor: pointer; }
    :focus-visible { outline: .2rem solid var(--accent); outline-offset: .1rem; }
    .tools { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem; margin-bottom: .5rem; }
    .tools input { flex: 0 1 20rem; min-width: 8rem; }
    table { width: 100%; border-collapse: collapse; }
    table.stale tbody { opacity: .75; }
    th, td { padding: .25rem .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
    th { font-weight: normal; }
    thead th { position: sticky; top: 0; background: var(--back); }
    thead button { font-weight: 600; white-space: nowrap; }
    tbody th { overflow-wrap: anywhere; min-width: 10rem; }
    tbody th button { background: none; border-color: transparent; padding: 0 .25rem; text-align: left; color: var(--accent);
      text-decoration: underline; }
    tr.selected { background: var(--raised); }
    td { overflow-wrap: anywhere; }
    td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
    td.bad { color: var(--bad); font-weight: 600; }
    .fleet { display: block; color: var(--muted); }
    .message { display: block; color: var(--bad); }
    td svg { display: block; width: 7.5rem; height: 1.25rem; overflow: visible; }
    polyline { fill: none; stroke: var(--accent); stroke-width: 1; vector-effect: non-scaling-stroke; }
    #detail { border: 1px solid var(--line); border-radius: .25rem; padding: 0 1rem 1rem; margin-top: 1rem; }
    #detail:has(#close) h2 { display: inline-block; margin-right: 1rem; }
    pre { margin: 0; padding: .5rem; background: var(--raised); overflow-x: auto; white-space: pre-wrap;
      overflow-wrap: anywhere; font: .9rem/1.4 ui-monospace, monospace; }
    #events { margin: 0; padding: 0; list-style: none; max-height: 24rem; overflow-y: auto;
      border: 1px solid var(--line); }
    #events li { padding: .25rem .5rem; border-bottom: 1px solid var(--line); }
    #events pre { padding: 0; background: none; }
    #events span { color: var(--muted); font-size: .9rem; }
    @media (max-width: 70rem) {
      table, thead, tbody, tr, th, td { display: block; }
      thead tr { display: flex; flex-wrap: wrap; gap: .25rem; }
      thead th { position: static; border: 0; padding: 0; }
      tbody tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
      tbody th, tbody td { border: 0; padding: .1rem 0; min-width: 0; }
      tbody td { display: grid; grid-template-columns: 7rem minmax(0, 1fr); gap: 0 .5rem; }
      tbody td::before { content: attr(data-column); color: var(--muted); grid-row: span 3; }
      td > * { grid-column: 2; }
      td.number { white-space: normal; }
    }

    """#
}
