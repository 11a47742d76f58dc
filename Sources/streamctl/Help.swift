/// The text of `--help`, and the part of it that concerns one command.
enum Help {
  static let text = """
    Usage: streamctl [--socket PATH] COMMAND

    Commands:
      list [NAME...]      list the streams, one per line; only those with the names,
                          or that a pattern such as 'sensors/*' fits (also: ls);
                          then the templates, which make streams for clients
      sub NAME...         print the events of a stream as they arrive, until it
                          ends; of several streams, or of those that a pattern such
                          as 'sensors/*' fits, now or later, with the name and a tab
                          in front
      get NAME            print the newest event of a stream, or of one of its keys
      pub NAME [DATA]     publish DATA as one event, or each line of standard input
                          as an event; end when the daemon has confirmed all of
                          them; a restart or crash of the daemon neither loses nor
                          repeats a line
      status              print the daemon's counters
      config              print the configuration that the daemon serves: the values
                          of its files and the defaults, without secrets
      clients             list the clients, and what each is subscribed to; for root
                          and the daemon's user
      kick CLIENT         end the connection of the client with this number
      refresh NAME        make the source of a stream ask its upstream now, if a
                          subscriber wants an event and the server has not asked for
                          a pause
      make NAME...        make streams of templates of the configuration; a subscriber
                          and a published event make them, too
      forget NAME...      end streams of templates, with their events; for who made
                          the stream, who may publish to it, and root
      request NAME [DATA] ask the upstream of a template once, with DATA or standard
                          input, and print the name of the stream that has the
                          answer; without its last part, the daemon makes it
      reload PID          make the daemon that is this process reload its
                          configuration; exit with code 78 if it has errors
      top                 show the rates of the streams once a second; on a terminal
                          in place, with keys n, r, l, s: sort by name, rate, lag,
                          state; arrows, space: scroll; q: quit
      check NAME          print whether a stream is fresh, for monitoring; exit with
                          code 0 if it is, 1 if it is blocked, waiting, not on disk
                          where it should be, or idle and old, 2 if it is stale,
                          failing or old, 3 if that is unknown

    Options of sub:
      --credit N          request N events at a time, and more when half of them are
                          written (default 256)
      --count N           stop after N events; request no more than that
      --from POS          begin with: replay (default), latest, new, state (the
                          newest event of each key), the events after an event id,
                          those since an RFC 3339 time, or since a duration ago such
                          as -5m
      -n, --last N        begin with the last N events
      --marker            show when all events are printed, and every 10 s while
                          none arrives: with the format json as an object with
                          caught_up, otherwise on standard error
      -f, --follow        go on with new events (default)
      --no-follow         stop after the events that are there
      --on-lag POLICY     after falling behind: skip (continue with the oldest event
                          in the buffer), latest, fail (default: the stream's
                          configuration)
      --where CONDITION   print only JSON events for whose value at a JSON pointer
                          the condition holds: /a=VALUE, /a>N, /a>=N, /a<N, /a<=N,
                          /a^=PREFIX, /a (it exists), !/a (it does not); VALUE is
                          JSON, else text; or a filter as a JSON object; all of
                          several must hold

    Options of sub and pub:
      --no-reconnect      exit when the connection is lost, instead of reconnecting
                          and resuming

    Options of pub:
      --as NAME           publish under this name, 1 to 48 bytes: another run of the
                          same input under it skips the lines that are in the stream
                          (default: a random name)

    Options of sub and get:
      -o, --format FORMAT data: one event per line, line breaks in JSON replaced by
                          spaces (default); get on a terminal indents JSON
                          json: one object per line with id, time and data; data is
                          the event itself if it is JSON, else a string
                          raw: the bytes of the events, without separators
      --timeout TIME      exit with code 69 when no event arrives for this time,
                          such as 500ms, 30s or 5m
      --max-event SIZE    accept events up to this size, such as 1GiB; exit with
                          code 65 on a larger one (default 64MiB)

    Options of get:
      --key KEY           the newest event of this key: a number, true, false or a
                          text

    Options of reload:
      --timeout TIME      exit with code 69 when the daemon does not reply within
                          this time (default 25s)

    Options of check:
      --max-age TIME      the stream is old if neither an event nor a fetch that
                          found it unchanged has come for this time, such as 30s
      --timeout TIME      exit with code 3 when the daemon does not reply within
                          this time (default 10s)

    Options of list, status, config, clients, top and check:
      --json, -o json     print JSON on one line: $streams, $stats, $config,
                          $clients, $stats once a second, or an object

    Options of list:
      --failing           only streams that fail, are stale or blocked, or have another
                          reason to be looked at
      -l, --long          with the ids of the newest events, and the templates that
                          have made the streams

    Options of top:
      --count N           stop after N tables
      --sort ORDER        name (default), rate or lag: the highest first, or state:
                          failing streams first

    Other options:
      --socket PATH       the daemon's socket, or its address of TCP such as
                          127.0.0.1:7878 (default $STREAMD_SOCKET, else
                          \(Arguments.defaultSocket))
      --token-file FILE   the file with the token for a daemon over TCP (default
                          $STREAMD_TOKEN_FILE)
      -h, --help          print this text; after a command, what concerns it
      --version           print the version

    Exit codes: 0 success, or the reader of the output has closed it; 64 usage
    error; 65 the daemon rejected the options or the event; 69 no daemon, or
    connection lost; 70 the stream failed; 71 no free descriptors or threads; 74
    input or output error; 75 events were lost, standard error has the number; 76
    unexpected reply; 77 access refused, or no such stream; 78 the configuration has
    errors; 128 + N terminated by signal N.

    """

  /// The commands, in the text's order.
  static var commands: [String] { entries.map { String($0.form.prefix { $0 != " " }) } }

  /// The help of a command; nil: there is no such command.
  static func text(of command: String) -> String? {
    guard let entry = entries.first(where: { $0.form == command || $0.form.hasPrefix(command + " ") }) else {
      return nil
    }
    let concerned = paragraphs.filter { paragraph in
      let heading = paragraph.prefix { $0 != "\n" }
      return heading.hasPrefix("Options of ")
        && heading.dropFirst("Options of ".count).split { !$0.isLetter }.contains { $0 == command }
    }
    let others = paragraphs.filter { $0.hasPrefix("Other options:") || $0.hasPrefix("Exit codes:") }
    let usage: Substring = "Usage: streamctl [OPTION…] \(entry.form)\n\n\(entry.lines.joined(separator: "\n"))"
    return ([usage] + concerned + others).joined(separator: "\n\n") + "\n"
  }

  /// The options of a command in their long form; of all commands if there is no such command.
  static func options(of command: String?) -> Set<String> {
    let text = command.flatMap { Self.text(of: $0) } ?? text
    return Set(text.split { !$0.isLetter && $0 != "-" }.map(String.init).filter { $0.hasPrefix("--") })
  }

  private static let paragraphs = text.split(separator: "\n\n").map { $0.hasSuffix("\n") ? $0.dropLast() : $0 }

  /// Each command with its operands, and its description: two columns of the text.
  private static let entries: [(form: String, lines: [String])] = {
    let width = 22
    let lines = paragraphs.first { $0.hasPrefix("Commands:") }?.split(separator: "\n").dropFirst() ?? []
    return lines.reduce(into: []) { entries, line in
      let description = "  " + line.dropFirst(width)
      let form = line.prefix(width).split(separator: " ").joined(separator: " ")
      if form.isEmpty {
        entries[entries.count - 1].lines.append(description)
      } else {
        entries.append((form, [description]))
      }
    }
  }()
}
