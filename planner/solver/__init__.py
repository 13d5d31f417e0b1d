"""Integer tables in, a proven plan out; knows neither hardware nor networks."""
