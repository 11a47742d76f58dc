import Glibc

/// Deliveries per second over the number of subscribers, one line per contender, both axes logarithmic.
struct Picture {
  struct Line {
    let name: String
    var points: [(subscribers: Int, rate: Double)] = []
  }

  let title: String
  let lines: [Line]

  private static let (width, height) = (760.0, 460.0)
  private static let (left, right, top, bottom) = (70.0, 130.0, 50.0, 50.0)
  /// Distinguishable with colour blindness, too.
  private static let colours = ["#999999", "#0072b2", "#d55e00", "#009e73", "#cc79a7"]

  /// A complete SVG document.
  var svg: String {
    let rates = lines.flatMap { $0.points.map(\.rate) }
    let low = floor(log10(rates.min() ?? 1))
    let high = ceil(log10(rates.max() ?? 10))
    let most = log10(Double(lines.flatMap { $0.points.map(\.subscribers) }.max() ?? 10))
    func x(_ subscribers: Double) -> Double {
      Self.left + log10(subscribers) / most * (Self.width - Self.left - Self.right)
    }
    func y(_ rate: Double) -> Double {
      Self.height - Self.bottom - (log10(rate) - low) / (high - low) * (Self.height - Self.top - Self.bottom)
    }
    var body = text(title, Self.left, 24, "font-weight='bold'")
    body += text("events delivered per second", Self.left, 42)
    body += text("subscribers", (x(1) + x(pow(10, most))) / 2, Self.height - 12, "text-anchor='middle'")
    for power in Int(low)...Int(high) {
      let rate = pow(10, Double(power))
      body += rule(x(1), y(rate), x(pow(10, most)), y(rate), "#dddddd")
      body += text(Report.round(rate), Self.left - 8, y(rate) + 4, "text-anchor='end'")
    }
    for power in 0...Int(most) {
      let count = pow(10, Double(power))
      body += rule(x(count), y(pow(10, low)), x(count), y(pow(10, high)), "#dddddd")
      body += text(counted(Int(count)), x(count), Self.height - Self.bottom + 18, "text-anchor='middle'")
    }
    for (line, colour) in zip(lines, Self.colours) {
      let points = line.points.map { "\(tenths(x(Double($0.subscribers)))),\(tenths(y($0.rate)))" }
      body += "<polyline points='\(points.joined(separator: " "))' fill='none' stroke='\(colour)' stroke-width='2'/>\n"
      if let last = line.points.last {
        body += text(line.name, x(Double(last.subscribers)) + 8, y(last.rate) + 4, "fill='\(colour)'")
      }
    }
    return """
      <svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 \(Int(Self.width)) \(Int(Self.height))' \
      font-family='sans-serif' font-size='13'>
      <rect width='100%' height='100%' fill='white'/>
      \(body)</svg>

      """
  }

  private func text(_ words: String, _ x: Double, _ y: Double, _ style: String = "") -> String {
    "<text x='\(tenths(x))' y='\(tenths(y))' \(style)>\(words)</text>\n"
  }

  private func rule(_ x1: Double, _ y1: Double, _ x2: Double, _ y2: Double, _ colour: String) -> String {
    "<line x1='\(tenths(x1))' y1='\(tenths(y1))' x2='\(tenths(x2))' y2='\(tenths(y2))' stroke='\(colour)'/>\n"
  }

  private func tenths(_ value: Double) -> Double { (value * 10).rounded() / 10 }
}

/// Measures the picture's data, the medians of all runs, and writes the picture.
func draw(_ options: Options, to path: String) throws {
  var lines: [Picture.Line] = []
  for subscribers in [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000] {
    let rates = try compareThroughput(options, subscribers: subscribers)
    Report.heading(counted(subscribers, "subscriber"))
    report(rates)
    if lines.isEmpty { lines = rates.map { Picture.Line(name: $0.name) } }
    for (index, rate) in rates.enumerated() { lines[index].points.append((subscribers, max(1, rate.figures.median))) }
  }
  guard let file = unsafe fopen(path, "w") else { throw BenchError("cannot write \(path): errno \(errno)") }
  unsafe fputs(
    Picture(title: "64-byte events from one publisher, on \(HostInfo.description)", lines: lines).svg, unsafe file)
  unsafe fclose(file)
}
