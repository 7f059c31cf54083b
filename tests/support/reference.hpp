// The slow, obvious truth in double precision, which the operations are measured against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace spillway::reference {

using Doubles = std::vector<double>;
using Size = std::size_t;

/// Gradient of a scalar function by central differences. In double the error is about 1e-9 of the
/// function.
inline Doubles numeric_gradient(Doubles x, std::function<double(Doubles const&)> const& function) {
  Doubles gradient(x.size());
  for (Size i = 0; i < x.size(); ++i) {
    double const before = x[i];
    double const step = 1e-5 * std::max(1.0, std::abs(before));
    x[i] = before + step;
    double const above = function(x);
    x[i] = before - step;
    double const below = function(x);
    x[i] = before;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

inline double dot(Doubles const& a, Doubles const& b) {
  double sum = 0;
  for (Size i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// c[M,N] = a[M,K] b[K,N], both row-major.
inline Doubles matmul(Size M, Size N, Size K, Doubles const& a, Doubles const& b) {
  Doubles c(M * N, 0.0);
  for (Size m = 0; m < M; ++m)
    for (Size k = 0; k < K; ++k)
      for (Size n = 0; n < N; ++n) c[m * N + n] += a[m * K + k] * b[k * N + n];
  return c;
}

inline Doubles layer_norm(Size rows, Size C, double eps, Doubles const& x, Doubles const& weight,
                          Doubles const& bias) {
  Doubles y(rows * C);
  for (Size r = 0; r < rows; ++r) {
    double mean = 0;
    for (Size c = 0; c < C; ++c) mean += x[r * C + c] / static_cast<double>(C);
    double variance = 0;
    for (Size c = 0; c < C; ++c)
      variance += (x[r * C + c] - mean) * (x[r * C + c] - mean) / static_cast<double>(C);
    for (Size c = 0; c < C; ++c)
      y[r * C + c] = (x[r * C + c] - mean) / std::sqrt(variance + eps) * weight[c] + bias[c];
  }
  return y;
}

inline Doubles rms_norm(Size rows, Size C, double eps, Doubles const& x, Doubles const& weight) {
  Doubles y(rows * C);
  for (Size r = 0; r < rows; ++r) {
    double square = 0;
    for (Size c = 0; c < C; ++c) square += x[r * C + c] * x[r * C + c] / static_cast<double>(C);
    for (Size c = 0; c < C; ++c) y[r * C + c] = x[r * C + c] / std::sqrt(square + eps) * weight[c];
  }
  return y;
}

inline double gelu(double x) {
  double const pi = std::acos(-1.0);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
}

inline double silu(double x) { return x / (1 + std::exp(-x)); }

/// Rotates one head: pairs (i, i + head_dim/2) by position * base^(-2i/head_dim).
inline Doubles rope(Doubles const& x, double position, double base) {
  Size const half = x.size() / 2;
  Doubles y(x.size());
  for (Size i = 0; i < half; ++i) {
    double const angle =
        position * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(x.size()));
    y[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
    y[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
  }
  return y;
}

/// Loss of one row of logits.
inline double cross_entropy(Doubles const& logits, Size target) {
  double const largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double const logit : logits) sum += std::exp(logit - largest);
  return std::log(sum) + largest - logits[target];
}

/// Sizes of an attention; q, out are [B, T, heads, head_dim], k, v [B, T, kv_heads, head_dim].
struct AttentionSizes {
  Size B, T, heads, kv_heads, head_dim;
  Size window = 0;
  double scale = 1;
  bool sees(Size query, Size key) const {
    return key <= query && (window == 0 || query - key < window);
  }
  Size q_at(Size b, Size t, Size head) const { return ((b * T + t) * heads + head) * head_dim; }
  Size kv_at(Size b, Size t, Size head) const {
    return ((b * T + t) * kv_heads + head / (heads / kv_heads)) * head_dim;
  }
};

struct AttentionResult {
  Doubles out, logsumexp;
};

/// Probabilities [T] of one query over all keys, and the logarithm of their sum.
inline Doubles attention_row(AttentionSizes const& s, Doubles const& q, Doubles const& k, Size b,
                             Size head, Size query, double& logsumexp) {
  Doubles score(s.T, -std::numeric_limits<double>::infinity());
  for (Size key = 0; key < s.T; ++key) {
    if (!s.sees(query, key)) continue;
    score[key] = 0;
    for (Size d = 0; d < s.head_dim; ++d)
      score[key] += s.scale * q[s.q_at(b, query, head) + d] * k[s.kv_at(b, key, head) + d];
  }
  double const largest = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (double const value : score) sum += std::exp(value - largest);
  logsumexp = largest + std::log(sum);
  for (double& value : score) value = std::exp(value - logsumexp);
  return score;
}

inline AttentionResult attention(AttentionSizes const& s, Doubles const& q, Doubles const& k,
                                 Doubles const& v) {
  AttentionResult result{Doubles(q.size(), 0.0), Doubles(s.B * s.heads * s.T)};
  for (Size b = 0; b < s.B; ++b)
    for (Size head = 0; head < s.heads; ++head)
      for (Size query = 0; query < s.T; ++query) {
        Doubles const p = attention_row(s, q, k, b, head, query,
                                        result.logsumexp[(b * s.heads + head) * s.T + query]);
        for (Size key = 0; key < s.T; ++key)
          for (Size d = 0; d < s.head_dim; ++d)
            result.out[s.q_at(b, query, head) + d] += p[key] * v[s.kv_at(b, key, head) + d];
      }
  return result;
}

struct AttentionGradient {
  Doubles dq, dk, dv;
};

/// By the chain rule; tests compare it with numeric_gradient.
inline AttentionGradient attention_backward(AttentionSizes const& s, Doubles const& q,
                                            Doubles const& k, Doubles const& v,
                                            Doubles const& dout) {
  AttentionGradient g{Doubles(q.size(), 0.0), Doubles(k.size(), 0.0), Doubles(v.size(), 0.0)};
  for (Size b = 0; b < s.B; ++b)
    for (Size head = 0; head < s.heads; ++head)
      for (Size query = 0; query < s.T; ++query) {
        double logsumexp = 0;
        Doubles const p = attention_row(s, q, k, b, head, query, logsumexp);
        Size const at = s.q_at(b, query, head);
        Doubles dp(s.T, 0.0);
        for (Size key = 0; key < s.T; ++key)
          for (Size d = 0; d < s.head_dim; ++d)
            dp[key] += dout[at + d] * v[s.kv_at(b, key, head) + d];
        double const average = dot(p, dp);
        for (Size key = 0; key < s.T; ++key)
          for (Size d = 0; d < s.head_dim; ++d) {
            Size const kv = s.kv_at(b, key, head) + d;
            double const dscore = p[key] * (dp[key] - average) * s.scale;
            g.dq[at + d] += dscore * k[kv];
            g.dk[kv] += dscore * q[at + d];
            g.dv[kv] += p[key] * dout[at + d];
          }
      }
  return g;
}

/// AdamW of one element as Loshchilov & Hutter write it.
struct Adamw {
  double weight = 0, m = 0, v = 0;
  void step(double gradient, double lr, double beta1, double beta2, double eps, double decay,
            int t) {
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient * gradient;
    double const m_hat = m / (1 - std::pow(beta1, t));
    double const v_hat = v / (1 - std::pow(beta2, t));
    weight -= lr * (m_hat / (std::sqrt(v_hat) + eps) + decay * weight);
  }
};

}  // namespace spillway::reference
