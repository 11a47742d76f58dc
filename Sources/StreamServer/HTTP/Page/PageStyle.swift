extension Page {
  /// The style sheet. In narrow windows a stream has two lines, without the values that its panel shows as well.
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
    h2 { margin: 0; font-size: 1.1rem; overflow-wrap: anywhere; }
    h3 { margin: .75rem 0 .25rem; font-size: 1rem; }
    header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 1.5rem; }
    main { display: flex; gap: 1rem; align-items: start; }
    main > section { flex: 1 1 0; min-width: 0; }
    #streams { flex-grow: 1.3; }
    dl { display: flex; flex-wrap: wrap; gap: 0 1.5rem; margin: .25rem 0; }
    dl div { display: flex; gap: .4rem; }
    dt { color: var(--muted); }
    dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
    p { margin: .25rem 0; }
    footer { margin-top: .75rem; }
    .bad, #status.lost { color: var(--bad); font-weight: 600; }
    #status { font-weight: 600; }
    #status.live { color: var(--good); }
    #retry { color: var(--muted); font-variant-numeric: tabular-nums; }
    button, input { font: inherit; color: inherit; background: var(--raised); border: 1px solid var(--line);
      border-radius: .25rem; padding: .25rem .5rem; min-height: 2rem; }
    button { cursor: pointer; }
    :focus-visible { outline: .2rem solid var(--accent); outline-offset: .1rem; }
    .tools { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem; margin: .75rem 0 .5rem; }
    .tools input { flex: 0 1 20rem; min-width: 8rem; }
    .tools h2 { flex: 1 1 auto; }
    .tools #streams-label { flex: 0 0 auto; margin-right: 1rem; }
    table { width: 100%; border-collapse: collapse; }
    table.old tbody { opacity: .75; }
    th, td { padding: .25rem .5rem; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--line);
      overflow-wrap: anywhere; }
    th { font-weight: normal; }
    thead th { position: sticky; top: 0; background: var(--back); }
    .state { min-width: 8rem; }
    thead button { background: none; border-color: transparent; padding: 0; font-weight: 600; white-space: nowrap; }
    tbody th { min-width: 10rem; }
    tbody th button { background: none; border: 0; padding: 0; min-height: 0; text-align: left; color: var(--accent);
      text-decoration: underline; }
    tr.selected, #rows tr:hover { background: var(--raised); }
    .number { white-space: nowrap; font-variant-numeric: tabular-nums; text-align: right; }
    .more { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; color: var(--muted); }
    svg { width: 7.5rem; height: 1.25rem; }
    td.chart > span { display: flex; align-items: center; justify-content: end; gap: .5rem; }
    td.chart .scale { min-width: 5.5rem; text-align: left; }
    path, polyline { fill: none; stroke: var(--line); vector-effect: non-scaling-stroke; }
    polyline { stroke: var(--accent); }
    .scale { color: var(--muted); font-size: .8rem; font-variant-numeric: tabular-nums; }
    #detail { border: 1px solid var(--line); border-radius: .25rem; padding: 0 1rem 1rem; margin-top: .75rem; }
    @media (min-width: 95.01rem) {
      main:has(#detail:not([hidden])) .wide { display: none; }
      #detail { position: sticky; top: 1rem; max-height: calc(100vh - 2rem); overflow-y: auto; }
    }
    .charts { display: flex; flex-wrap: wrap; gap: .5rem 2rem; }
    .charts p { flex: 1 1 14rem; display: grid; grid-template-columns: 1fr auto; color: var(--muted); }
    .charts svg { grid-row: 2; grid-column: 1 / -1; width: 100%; height: 3rem; }
    .charts .scale { font-size: 1rem; }
    pre { margin: 0; padding: .5rem; background: var(--raised); overflow-x: auto; white-space: pre-wrap;
      overflow-wrap: anywhere; font: .9rem/1.4 ui-monospace, monospace; }
    .scrolled { max-height: 20rem; overflow-y: auto; border: 1px solid var(--line); }
    #keys td:nth-child(2) { font: .9rem/1.5 ui-monospace, monospace; }
    #events { margin: 0; padding: 0; list-style: none; }
    #events li { padding: .25rem .5rem; border-bottom: 1px solid var(--line); }
    #events pre { padding: 0; background: none; }
    #events span { color: var(--muted); font-size: .9rem; }
    @media (max-width: 70rem) {
      .wide { display: none; }
    }
    @media (max-width: 95rem) {
      main { flex-direction: column; align-items: stretch; gap: 0; }
      main > section { flex: none; }
      #detail { order: -1; }
    }
    @media (max-width: 40rem) {
      body { padding: .5rem; }
      #streams table, #streams thead, #streams tbody, #streams tr, #streams th, #streams td { display: block; }
      #streams thead tr { display: flex; flex-wrap: wrap; gap: 0 1rem; }
      #streams thead th { position: static; border: 0; padding: 0; }
      #streams tbody tr { display: grid; grid-template-columns: 1fr auto auto; align-items: center; gap: .1rem .75rem;
        padding: .35rem 0; border-bottom: 1px solid var(--line); }
      #streams tbody th, #streams tbody td { border: 0; padding: 0; min-width: 0; white-space: nowrap; }
      #streams tbody th { grid-column: 1 / 3; }
      #streams tbody th button { width: 100%; overflow: hidden; text-overflow: ellipsis; }
      #streams tbody .state { text-align: right; }
      #streams tbody .events { text-align: left; }
      #streams tbody .age { min-width: 6rem; }
      #streams .wide, #streams .more, #streams thead .chart { display: none; }
      #streams svg { width: 4rem; }
    }

    """#
}
