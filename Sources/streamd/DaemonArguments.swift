import StreamRuntime

/// The parsed command line.
enum DaemonArguments: Equatable {
  case serve(configuration: String)
  case check(configuration: String)
  case version
  case help

  static let defaultConfiguration = "/etc/streamd/streamd.toml"

  static let usage = """
    Usage: streamd [--config FILE]
           streamd --check [FILE]

    Reads each configured source once, stores its last events, and sends them to any
    number of local clients over a Unix socket, within each client's own credit.

      --config FILE  configuration file (default: \(defaultConfiguration))
      --check        report all errors in the configuration, also of a pipe or of - (standard
                     input); exit 0 if none, 78 otherwise
      --version      print the version
      --help         print this text

    Signals: SIGTERM and SIGINT end all requests with CANCELED and stop the daemon;
    SIGHUP reloads the configuration: all of it, or nothing if it has an error.
    Print the events of a stream with: streamctl sub NAME
    """

  /// An invalid command line.
  struct UsageError: Error, Equatable {
    let sentence: String
  }

  /// - Parameter arguments: without the program's name.
  static func parse(_ arguments: [String]) throws(UsageError) -> DaemonArguments {
    var configuration: String?
    var isCheck = false
    var rest = arguments[...]
    while let argument = rest.popFirst() {
      switch argument {
      case "--help", "-h": return .help
      case "--version": return .version
      case "--check": isCheck = true
      case "--config", "-c":
        guard let file = rest.popFirst() else { throw UsageError(sentence: "\(argument) needs a file") }
        configuration = file
      case _ where argument.hasPrefix("--config="): configuration = String(argument.dropFirst("--config=".count))
      case _ where isCheck && configuration == nil && (argument == "-" || !argument.hasPrefix("-")):
        configuration = argument
      default:
        let meant = nearest(to: argument, among: ["--config", "--check", "--version", "--help"])
        throw UsageError(
          sentence: "unknown argument \"\(argument)\"; " + (meant.map { "did you mean \"\($0)\"?" } ?? "try --help"))
      }
    }
    let file = configuration ?? defaultConfiguration
    return isCheck ? .check(configuration: file) : .serve(configuration: file)
  }
}
